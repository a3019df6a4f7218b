"""A live list in a real browser: what a reader has done to it stays, and it says how fresh it is."""

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone
from playwright.sync_api import Page, Request, Response, expect

from engines import transactions
from engines.core.states import AttemptOutcome
from engines.models import Attempt, TransactionRecord
from tests.browser.looks import fits
from tests.factories import make_pipeline
from tests.processes import eventually

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

LIST = "/admin/engines/transactionrecord/"
FIVE_SECONDS = 5000
TWO_LINES = 64


class Traffic:
    """The refreshes of a page: how many were asked for, and what they were answered with."""

    def __init__(self, page: Page) -> None:
        self.asked = 0
        self.answers: list[int] = []
        page.on("request", self._count)
        page.on("response", self._note)

    def _count(self, request: Request) -> None:
        self.asked += _is_refresh(request)

    def _note(self, response: Response) -> None:
        if _is_refresh(response.request):
            self.answers.append(response.status)


def _is_refresh(request: Request) -> bool:
    """Of the page; the menu's numbers have a pace of their own."""
    return "x-ergon-refresh" in request.headers and "/badges/" not in request.url


def waits(page: Page, holds: Any, what: str) -> None:
    def asked() -> bool:
        page.wait_for_timeout(20)  # lets the browser's events in
        return bool(holds())

    eventually(asked, what)


@pytest.fixture
def traffic(inside: Page) -> Traffic:
    """A list of 70 rows, and the refreshes of its page."""
    make_pipeline("orders")
    transactions.submit_many("orders", [{"payload": {"n": n}, "id": f"row-{n}"} for n in range(70)])
    inside.clock.install()
    inside.goto(LIST)
    return Traffic(inside)


def test_a_live_list_keeps_what_its_reader_has_done_and_says_how_fresh_it_is(inside: Page, traffic: Traffic) -> None:
    expect(inside.locator(".ergon-live")).to_contain_text("Live")
    expect(inside.locator("thead th").first).to_have_css("position", "sticky")
    keeps_focus_and_place(inside)
    sends_only_changes(inside, traffic)
    made = inside.locator("td time").first
    expect(made).to_have_text(re.compile(r"^(now|\d+ (s|min) (ago))$"))
    assert re.search(r"\d{4}.*\d:\d\d:\d\d", made.get_attribute("title") or "")
    is_paused(inside, traffic)
    is_hidden(inside, traffic)
    loses_its_connection(inside)
    leaves_a_column_out(inside)
    inside.set_viewport_size({"width": 390, "height": 800})
    assert fits(inside)
    heights = inside.locator(".data-row").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert max(heights) <= TWO_LINES
    inside.set_viewport_size({"width": 1280, "height": 800})
    Session.objects.all().delete()
    inside.clock.fast_forward(FIVE_SECONDS)
    expect(inside.locator(".ergon-live")).to_contain_text("Signed out")


def keeps_focus_and_place(inside: Page) -> None:
    focused = inside.get_by_role("link", name="row-40", exact=True)
    focused.focus()
    region = inside.get_by_role("region", name="Transactions")
    region.evaluate("one => { one.scrollTop = 900; }")
    place = focused.bounding_box()
    transactions.submit("orders", {"n": 1}, id="fresh")
    inside.clock.fast_forward(FIVE_SECONDS)
    expect(inside.get_by_role("link", name="fresh")).to_be_attached()
    expect(focused).to_be_focused()
    moved = focused.bounding_box()
    assert place is not None
    assert moved is not None
    assert abs(moved["y"] - place["y"]) <= TWO_LINES
    assert region.evaluate("one => one.scrollTop") >= 900


def sends_only_changes(inside: Page, traffic: Traffic) -> None:
    inside.clock.fast_forward(FIVE_SECONDS)
    waits(inside, lambda: traffic.answers[-1:] == [304], "an answer that nothing has changed")


def is_paused(inside: Page, traffic: Traffic) -> None:
    live = inside.locator(".ergon-live")
    live.get_by_role("button", name="Pause refreshing").click()
    expect(live).to_contain_text("Paused")
    asked = traffic.asked
    transactions.submit("orders", {}, id="meanwhile")
    inside.clock.fast_forward(3 * FIVE_SECONDS)
    expect(live).to_contain_text(re.compile(r"(1[5-9]|[2-9]\d) s ago"))
    assert traffic.asked == asked
    live.get_by_role("button", name="Resume refreshing").click()
    expect(inside.get_by_role("link", name="meanwhile")).to_be_attached()
    expect(live).to_contain_text("Live")


def is_hidden(inside: Page, traffic: Traffic) -> None:
    hide = "is => Object.defineProperty(document, 'hidden', { get: () => is === 'hidden', configurable: true })"
    inside.evaluate(hide, "hidden")
    asked = traffic.asked
    inside.clock.fast_forward(3 * FIVE_SECONDS)
    assert traffic.asked == asked
    inside.evaluate(hide, "seen")
    inside.clock.fast_forward(1000)
    waits(inside, lambda: traffic.asked > asked, "a question of a tab that is seen again")


def loses_its_connection(inside: Page) -> None:
    live = inside.locator(".ergon-live")
    inside.context.set_offline(offline=True)
    inside.clock.fast_forward(FIVE_SECONDS)
    expect(live).to_contain_text("Connection lost")
    expect(live.get_by_role("status")).to_contain_text("the data may be outdated")
    expect(inside.locator("[data-stale]")).to_be_visible()
    inside.context.set_offline(offline=False)
    inside.clock.fast_forward(FIVE_SECONDS)
    expect(live).to_contain_text("Live")
    expect(live.get_by_role("status")).to_have_text("Refreshing again")
    expect(inside.locator("[data-stale]")).to_be_hidden()


def leaves_a_column_out(inside: Page) -> None:
    heading = inside.get_by_role("columnheader", name="Duration")
    inside.get_by_text("Columns", exact=True).click()
    inside.get_by_label("Duration").uncheck()
    expect(heading).to_have_count(0)
    transactions.submit("orders", {}, id="last")
    inside.clock.fast_forward(FIVE_SECONDS)
    expect(inside.get_by_role("link", name="last")).to_be_attached()
    expect(heading).to_have_count(0)


def test_an_open_fold_stays_open_while_its_page_refreshes(inside: Page) -> None:
    make_pipeline("orders")
    record = transactions.find(transactions.submit("orders", {}).id)
    TransactionRecord.objects.update(fencing_token=1)
    tried = {"transaction_id": record.pk, "delivery": 1, "step": 1, "of_total": 9, "started_at": timezone.now()}
    failed = {
        "outcome": AttemptOutcome.FAILURE,
        "error_type": "OSError",
        "traceback": "Traceback: here",
        "duration": 0.1,
    }
    Attempt.objects.create(number=1, **tried, **failed)
    inside.clock.install()
    inside.goto(f"{LIST}{record.pk}/change/")
    fold = inside.locator("details.ergon-fold").first
    fold.locator("summary").click()
    expect(fold.locator("pre")).to_be_visible()
    Attempt.objects.create(number=2, message="once more", **tried, **failed)
    inside.clock.fast_forward(FIVE_SECONDS)
    expect(inside.get_by_text("once more")).to_be_visible()
    expect(fold.locator("pre")).to_be_visible()
    transactions.cancel(record.uid, by="ada", reason="enough")
    inside.clock.fast_forward(FIVE_SECONDS)
    expect(inside.locator(".ergon-live")).to_have_count(0)
    expect(fold.locator("pre")).to_be_visible()
    expect(inside.get_by_text("Cancelled", exact=False).first).to_be_visible()
