"""A transaction that waits for its next attempt, in a real browser, with a real consumer."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engines import transactions
from tests.browser.looks import fits
from tests.durable_transactions import consumer, make_policy, submit
from tests.factories import make_pipeline

# The journey goes with the database that production has.
pytestmark = pytest.mark.postgresql


@pytest.mark.parametrize("context", ["narrow dark"], indirect=True)
def test_a_parked_retry_counts_down_and_the_open_page_says_when_it_has_succeeded(inside: Page, tmp_path: Path) -> None:
    import_module("tests.tasks")
    retry = {"max_attempts": 10_000, "backoff": 4, "backoff_multiplier": 1}
    body = {"steps": {"process": {"retry": retry}}, "loop": {"transaction_timeout": 86_400}, "park_after": 0}
    pipeline = make_pipeline("parcels", policy=make_policy("patient", body))
    (uid,) = submit(pipeline, fail_without=str(tmp_path / "carrier"))
    inside.goto(f"/admin/engines/transactionrecord/{transactions.find(uid).pk}/change/")
    status = inside.get_by_role("region", name="Status")
    expect(status).to_contain_text("no worker serves this pipeline")
    expect(inside.get_by_text("No attempt has ended yet.")).to_be_visible()
    with consumer("parcels"):
        countdown = status.locator("[data-countdown]")
        expect(countdown).to_be_visible()
        expect(status).to_contain_text(re.compile(r"Due in (\d s|a moment); attempt \d+ of 10000 is next, after"))
        expect(status).to_contain_text(re.compile(r"\d+ of 10000 used"))
        expect(status).to_contain_text("of 1 d used")
        expect(inside.locator(".ergon-try").first).to_contain_text("not there yet")
        # It ticks between two refreshes, which come every five seconds.
        expect(countdown).to_have_text("a moment")
        assert fits(inside)
        (tmp_path / "carrier").touch()
        expect(status).to_contain_text("Succeeded")
    expect(inside.locator(".ergon-trail > li").last).to_contain_text("Succeeded")
    expect(status.locator("[data-countdown]")).to_have_count(0)
    assert fits(inside)
