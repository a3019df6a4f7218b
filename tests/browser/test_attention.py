"""The dashboard in a real browser: from an open breaker to a calm page, and as a viewer sees it all."""

from collections.abc import Callable

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Page, expect

from engines import pipelines
from engines.dead_letters import bulk
from engines.models import BulkOperation
from ergon_site.access.models import AuditEntry
from providers.models import Gate
from tests.browser.looks import fits
from tests.console import records
from tests.console.test_attention import break_down
from tests.durable_transactions import consumer, wait_until_started
from tests.factories import make_pipeline
from tests.processes import Site, eventually

pytestmark = pytest.mark.postgresql


def act(page: Page, button: str, confirm: str, reason: str) -> None:
    page.get_by_role("button", name=button).click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("dialog").get_by_role("button", name=confirm).click()


@pytest.mark.parametrize("context", ["narrow dark"], indirect=True)
def test_a_breaker_is_reset_and_its_dead_letters_replayed_from_the_dashboard(inside: Page) -> None:
    orders = make_pipeline("orders")
    letters = [records.fail(orders, {}, records.failure("no route")) for _ in range(3)]
    break_down(*(letter.uid for letter in letters))
    with consumer("orders") as process:
        wait_until_started(process)
        inside.goto("/admin/")
        cause = inside.get_by_role("listitem").filter(has_text="breaker open").first
        expect(cause).to_contain_text(": 3 dead letters")
        expect(cause.get_by_role("listitem")).to_contain_text("3 failed with ConnectionError: no route")
        assert fits(inside)
        act(inside, "Acknowledge", "Acknowledge", "they were told")
        expect(inside.get_by_role("heading", name="Nothing needs attention.")).to_be_visible()
        inside.get_by_text("1 acknowledged").click()
        expect(inside.get_by_text("Acknowledged by ada until")).to_be_visible()
        act(inside, "Show again", "Show again", "they are back")
        act(inside, "Reset breaker", "Reset the breaker", "they are back")
        expect(inside.get_by_text("Reset: the breaker is closed.")).to_be_visible()
        expect(inside.get_by_role("heading", name="1 item needs attention")).to_be_visible()
        inside.get_by_role("button", name="Replay group").click()
        inside.get_by_label("Canary").fill("1")
        inside.get_by_label("Reason").fill("they are back")
        inside.get_by_role("dialog").get_by_role("button", name="Replay all").click()
        expect(inside.get_by_text("Started. This page shows its progress.")).to_be_visible()
        eventually(lambda: bulk.advance() >= 0 and BulkOperation.objects.get().state == "done", "all are replayed")
        inside.goto("/admin/")
        expect(inside.get_by_role("heading", name="Nothing needs attention.")).to_be_visible()
        assert fits(inside)
    operation = BulkOperation.objects.get()
    assert (operation.canary, operation.done, operation.failed) == (1, 3, 0)
    actions = AuditEntry.objects.filter(actor="ada").order_by("id").values_list("action", flat=True)
    assert list(actions[:4]) == ["attention.acknowledge", "attention.withdraw", "breaker.reset", "bulk.replay"]


def test_a_viewer_sees_every_act_disabled_and_its_reason(
    page: Page, site: Site, client: Client, hire: Callable[[str], User]
) -> None:
    orders = make_pipeline("orders")
    letters = [records.fail(orders, {}, records.failure("no route")) for _ in range(3)]
    break_down(*(letter.uid for letter in letters))
    pipelines.pause("orders", by="ada", reason="a day off")
    client.force_login(hire("viewer"))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": site.url}])
    letter, gate = letters[0], Gate.objects.get()
    acts = {
        "": {"Reset breaker", "Replay group", "Resume", "Acknowledge"},
        f"engines/transactionrecord/{letter.transaction_id}/change/": {"Replay", "Edit and replay", "Cancel"},
        f"engines/deadletter/{letter.pk}/change/": {"Replay", "Edit and replay", "Discard"},
        f"engines/deadlettergroup/{letter.group_id}/change/": {
            "Replay all",
            "Discard all",
            "Mute",
            "Resolve",
            "Reopen",
        },
        f"engines/pipeline/{orders.pk}/change/": {"Resume", "Submit a test", "Edit"},
        f"providers/gate/{gate.pk}/change/": {"Reset", "Force open", "Force closed"},
    }
    for place, names in acts.items():
        page.goto(f"/admin/{place}")
        main = page.get_by_role("main")
        for name in names:
            button = main.get_by_role("button", name=name, exact=True).first
            expect(button).to_be_disabled()
            assert button.get_attribute("title"), name
        expect(main.locator(".ergon-why").first).to_be_visible()
        # None is left that could be pressed, but those that change only what is seen.
        usable = main.locator("button.ergon-button:enabled, a.ergon-button, form[method=post] button:enabled")
        assert usable.count() == 0, (place, usable.all_inner_texts())
