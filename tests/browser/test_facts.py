"""Boundaries and facts in a real browser."""

import pytest
from django.db.models.functions import Now
from playwright.sync_api import Page, expect

from ergon_site.access.models import AuditEntry
from facts import ledger, provisioning
from facts.models import Boundary
from tests.browser.looks import everywhere, fits
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once


@everywhere
def test_a_gate_is_closed_and_reconciled(inside: Page) -> None:
    """From the dashboard, which says that the gate is closed, to a boundary that is normal again."""
    make_boundary()
    provisioning.close_gate(PLANT, OFFICE, by="grace", reason="the line moves")
    ledger.append_many([draft(number) for number in range(150)])
    inside.goto("/admin/")
    inside.get_by_role("link", name="the gate is closed by grace: the line moves").click()
    expect(inside.get_by_text("Both sides keep working.")).to_be_visible()
    assert fits(inside)
    inside.get_by_role("button", name="Open the gate").click()
    inside.get_by_label("Reason").fill("it has moved")
    inside.get_by_role("dialog").get_by_role("button", name="Open the gate").click()
    expect(inside.get_by_text("Open: the boundary is reconciling.")).to_be_visible()
    expect(inside.get_by_text("the backlog is being handed over")).to_be_visible()
    inside.clock.install()
    inside.reload()
    Boundary.objects.update(frontier=149, gate="normal")
    inside.clock.fast_forward(5000)
    expect(inside.get_by_text("the backlog is being handed over")).to_be_hidden()
    assert AuditEntry.objects.get(action="boundary.open").reason == "it has moved"


@everywhere
def test_an_alarm_is_explained_and_skipped(inside: Page) -> None:
    """From the dashboard, which tells the alarm, to a boundary that lists what was skipped, and why."""
    boundary = make_boundary(source_url="https://plant.example", source_token_file="plant")
    alarm = "the message 'a' at offset 3 has arrived before with different content"
    Boundary.objects.update(alarm=alarm, alarm_offset=3, alarm_last=3, frontier=2, heard_at=Now())
    inside.goto("/admin/")
    inside.get_by_role("link", name=f"alarm: {alarm}").click()
    expect(inside.get_by_text("an administrator skips offset 3")).to_be_visible()
    assert fits(inside)
    inside.get_by_role("button", name="Skip offset 3").click()
    inside.get_by_label("Reason").fill("the first one holds")
    inside.get_by_role("dialog").get_by_role("button", name="Skip past the alarm").click()
    expect(inside.get_by_role("heading", name="Skipped offsets")).to_be_visible()
    expect(inside.get_by_text("the first one holds")).to_be_visible()
    assert fits(inside)
    boundary.refresh_from_db()
    assert (boundary.alarm, boundary.frontier) == ("", 3)


@everywhere
def test_a_consumer_is_retired_after_its_page_has_refreshed_itself(inside: Page) -> None:
    make_boundary()
    consumer = provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    inside.clock.install()
    inside.goto(f"/admin/facts/consumer/{consumer.pk}/change/")
    inside.evaluate("document.querySelector('.ergon-age').textContent = 'old'")
    inside.clock.fast_forward(5000)
    expect(inside.locator(".ergon-age")).to_contain_text("Updated at")
    inside.get_by_role("button", name="Retire").click()
    inside.get_by_label("Reason").fill("it reads elsewhere now")
    inside.get_by_role("dialog").get_by_role("button", name="Retire the consumer").click()
    expect(
        inside.get_by_text("Nobody can read as this consumer, and it does not hold back truncation.")
    ).to_be_visible()
    assert fits(inside)


@everywhere
def test_a_fact_is_found_and_its_lineage_followed(inside: Page) -> None:
    make_boundary()
    ledger.append(draft(1, message_id="created", correlation_id="order:1"))
    ledger.append(draft(2, message_id="released", causation_id="created", correlation_id="order:1"))
    inside.goto("/admin/facts/fact/")
    inside.get_by_placeholder("A message id, subject or correlation id").fill("released")
    inside.keyboard.press("Enter")
    inside.get_by_role("link", name="released", exact=True).click()
    expect(inside.get_by_role("heading", name="Causes")).to_be_visible()
    assert fits(inside)
    inside.get_by_role("link", name="created").click()
    expect(inside.get_by_role("heading", name="Effects")).to_be_visible()
