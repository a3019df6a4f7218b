"""Breakers of providers in a real browser."""

from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AuditEntry
from providers import ProviderConnectionError, RetryPolicy, calls
from providers.models import Gate
from tests.browser.looks import everywhere, fits
from tests.console.test_providers_pages import sent_away
from tests.providers.scripted_providers import TENANT, WHO, scripted

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once


@everywhere
def test_a_breaker_is_found_open_reset_and_forced(inside: Page) -> None:
    """From the dashboard, which says that the breaker is open, to one that an operator holds open."""
    calls.set_quota(WHO, limit=1000, window=86_400, by="ada")
    for _ in range(5):
        scripted(ProviderConnectionError("no route"), retry_policy=RetryPolicy(max_attempts=1)).ask()
    # Far enough ahead for a slow machine.
    Gate.objects.update(open_until=(database_time() + timedelta(hours=1)).timestamp())
    sent_away("c-1")
    inside.goto("/admin/")
    inside.get_by_role("link", name="rank rank_snapshot: breaker open").click()
    expect(inside.get_by_text("Open after 5 consecutive failures: calls are blocked")).to_be_visible()
    assert fits(inside)
    expect(inside.get_by_text("1 task of the last hour was rescheduled")).to_be_visible()
    inside.get_by_role("button", name="Reset").click()
    inside.get_by_label("Reason").fill("they are back")
    inside.get_by_role("dialog").get_by_role("button", name="Reset the breaker").click()
    expect(inside.get_by_text("Closed: calls are allowed.")).to_be_visible()
    inside.get_by_role("button", name="Force open").click()
    inside.get_by_label("Duration in minutes").fill("90")
    inside.get_by_label("Reason").fill("they move")
    inside.get_by_role("dialog").get_by_role("button", name="Force the breaker open").click()
    expect(inside.get_by_text("Forced open by ada")).to_be_visible()
    inside.goto("/admin/providers/gate/?breaker=forced")
    expect(inside.get_by_text(TENANT)).to_be_visible()
    assert fits(inside)
    assert AuditEntry.objects.get(action="breaker.reset").reason == "they are back"
    assert scripted({}).ask().reason_code == "circuit_open"
