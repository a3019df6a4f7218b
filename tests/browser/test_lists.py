"""How lists look in a real browser: numbers keep their units, rows their places."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone
from playwright.sync_api import Page, expect

from engines import pipelines, policies, schedules, transactions
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from engines.models import BulkOperation, TransactionRecord, Worker
from ergon_site.access import audit
from facts import ledger
from facts.models import Boundary
from providers import calls
from tests.browser.looks import everywhere
from tests.console import records
from tests.console.test_providers_pages import sent_away
from tests.factories import WorkerFactory, make_pipeline
from tests.facts.drafts import draft, make_boundary
from tests.providers.scripted_providers import WHO, scripted

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

LISTS = (
    "engines/transactionrecord",
    "engines/pipeline",
    "engines/worker",
    "providers/gate",
    "providers/providerexecutionmetric",
    "providers/providerevent",
    "providers/taskexecution",
    "facts/boundary",
)
WIDTHS = (1024, 1100, 1280, 1400)
BROKEN = r"""() => {
  const broken = [];
  const texts = document.createTreeWalker(document.querySelector(".result-list"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    for (const { 0: amount, index } of text.data.matchAll(/\d [/]? ?(ms|s|min|h|d|days|%|KiB|MiB|bytes)\b|\d %/g)) {
      const range = document.createRange();
      range.setStart(text, index);
      range.setEnd(text, index + amount.length);
      const boxes = [...range.getClientRects()].filter((one) => one.width);
      const lines = new Set(boxes.map((one) => Math.round(one.bottom)));
      if (lines.size > 1) broken.push(text.data.trim());
    }
  }
  return broken;
}"""


def fill_lists() -> None:
    """Rows with amounts beside texts that want all the room there is."""
    orders = make_pipeline("orders.of.the.whole.enterprise.with.a.long.name")
    records.fail(orders, {}, records.failure("the bank of a far away country said no " * 8))
    TransactionRecord.objects.update(started_at=F("finished_at") - timedelta(milliseconds=66))
    records.make_worker(orders.name, "another.pipeline.with.a.long.name", "and.one.more")
    scripted({}).ask(correlation_id="order-" + "7" * 60)
    for limit in (1000, 2000):
        calls.set_quota(WHO, limit=limit, window=86_400, by="ada", reason="the contract says so " * 8)
    sent_away("c-1" + "9" * 40)
    make_boundary()
    ledger.append(draft(1))
    Boundary.objects.update(row_ceiling=10)


def test_amounts_and_their_units_stay_on_one_line(inside: Page) -> None:
    fill_lists()
    for name in LISTS:
        inside.goto(f"/admin/{name}/")
        expect(inside.locator(".result-list")).to_be_visible()
        for width in WIDTHS:
            inside.set_viewport_size({"width": width, "height": 800})
            assert inside.evaluate(BROKEN) == [], (name, width)
    inside.set_viewport_size({"width": 1280, "height": 800})


SIDEWAYS = """() => {
  const list = document.querySelector(".result-list");
  let box = list.parentElement;
  while (getComputedStyle(box).overflowX === "visible") box = box.parentElement;
  return list.scrollWidth - box.clientWidth;
}"""


def test_the_columns_of_every_list_fit_a_small_desktop(inside: Page) -> None:
    fill_lists()
    orders = make_pipeline("invoices", policy="default")
    policies.write("default-for-the-slow-ones", {}, kind="consumer", by="ada", reason="")
    slow = make_pipeline("archive", policy="default-for-the-slow-ones")
    later = timezone.now() + timedelta(hours=6)
    transactions.submit(orders.name, {"number": "R-00422", "customer": "C-015"}, available_at=later)
    for payload in ({"amount": 83.22, "number": "R-00422", "customer": "C-015"}, {}):
        records.succeed(slow, payload, {}, id=f"01a1eac0-6917-766c-9799-c0f990372c99-{len(payload)}-parcel")
    pipelines.pause(slow.name, by="ada", reason="the archive is being moved to another disk")
    cron = "*/5 6-18 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 1-12 0-6"
    plan = schedules.Plan(pipeline="archive", cron=cron, time_zone="America/Argentina/ComodRivadavia")
    schedules.create("every-five-minutes-of-the-day-" + "s" * 40, plan, by="ada")
    WorkerFactory.create(host="worker-7.plants.example.com", pipelines=["archive", "orders", "invoices"])
    inside.set_viewport_size({"width": 1280, "height": 800})
    for name in (*LISTS, "engines/deadlettergroup", "engines/deadletter", "engines/schedule"):
        inside.goto(f"/admin/{name}/")
        assert inside.evaluate(SIDEWAYS) <= 0, name


@everywhere
def test_workers_keep_their_places_while_the_dashboard_refreshes_itself(inside: Page) -> None:
    for host in ("c", "a", "b"):
        WorkerFactory.create(host=host, pid=7, pipelines=["orders"])
    inside.clock.install()
    inside.goto("/admin/")
    rows = inside.locator("[aria-labelledby=crew] tbody tr td:first-child")
    expect(rows).to_have_text(["a:7", "b:7", "c:7"])
    Worker.objects.filter(host="a").update(heartbeat_at=timezone.now() + timedelta(seconds=2))
    Worker.objects.filter(host="b").update(heartbeat_at=timezone.now() - timedelta(seconds=2), in_flight=5)
    inside.clock.fast_forward(5000)
    expect(inside.locator("[aria-labelledby=crew] tbody")).to_contain_text("5")
    expect(rows).to_have_text(["a:7", "b:7", "c:7"])
    Worker.objects.filter(host="c").update(heartbeat_at=timezone.now() - timedelta(minutes=31))
    inside.clock.fast_forward(5000)
    expect(rows).to_have_text(["c:7", "a:7", "b:7"])


def test_words_of_the_audit_log_stay_whole(inside: Page) -> None:
    audit.record(actor="command of ada@host-7.plants.example", action="dead_letter_group.replay_all", target="group 7")
    inside.set_viewport_size({"width": 1024, "height": 800})
    inside.goto("/admin/access/auditentry/")
    action = inside.locator(".result-list").get_by_text("dead_letter_group.replay_all")
    assert len(action.evaluate("one => [...one.getClientRects()]")) == 1
    assert inside.get_by_title("command of ada@host-7.plants.example").bounding_box()["width"] >= 160  # type: ignore[index]


@pytest.mark.parametrize("name", ["engines/transactionrecord", "engines/worker"])
def test_headings_beside_the_values_begin_with_one_capital(inside: Page, name: str) -> None:
    records.make_worker("orders")
    records.fail(make_pipeline("orders"), {})
    inside.set_viewport_size({"width": 400, "height": 800})
    inside.goto(f"/admin/{name}/")
    cells = inside.locator(".result-list [data-label]")
    expect(cells.first).to_be_visible()
    shown = cells.evaluate_all(
        "all => all.map(one => [one.dataset.label, getComputedStyle(one, '::before').textTransform])"
    )
    assert shown
    assert {transform for _, transform in shown} == {"none"}
    assert all(label[0].isupper() for label, _ in shown)
    assert not any(word[0].isupper() for label, _ in shown for word in label.split()[1:])


def test_nothing_is_cut_off_on_a_narrow_screen(inside: Page) -> None:
    pipelines = [f"orders-of-plant-{number}" for number in range(6)]
    records.make_worker(*pipelines)
    letter = records.fail(make_pipeline("orders"), {}, records.failure("synthetic_failure_of_the_dependency_" * 3))
    audit.record(actor="command of ada@host-7.plants.example", action="dead_letter_group.replay_all", target="group 7")
    operation = bulk.begin("discard", letter.group_id, Terms(canary=0, rate=100), by="ada", reason="of no use")
    BulkOperation.objects.update(moved_at=F("moved_at") - timedelta(seconds=5))
    bulk.advance()
    inside.set_viewport_size({"width": 390, "height": 800})
    inside.goto("/admin/access/apiclient/add/")
    scopes = inside.locator("#id_scopes label span")
    assert not any(scopes.evaluate_all("all => all.map(one => one.scrollWidth > one.clientWidth)"))
    pages = ["", f"engines/deadlettergroup/{letter.group_id}/change/", f"engines/bulkoperation/{operation.pk}/change/"]
    for address in pages:
        inside.goto(f"/admin/{address}")
        tables = inside.locator(".ergon-scroll")
        expect(tables.first).to_be_visible()
        cut_off = tables.evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.innerText)"
        )
        assert cut_off == [], address
