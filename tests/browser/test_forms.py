"""The journey of a policy, in a real browser on PostgreSQL: edited, rehearsed, saved, obeyed by a running consumer."""

import pytest
from playwright.sync_api import Page, expect

from engines import policies, transactions
from engines.models import Attempt, DeadLetter, Pipeline, PolicyRehearsal
from ergon_site.access.database.clock import database_time
from tests.browser.looks import fits
from tests.durable_transactions import consumer, make_policy, submit, wait_until_started
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually

pytestmark = pytest.mark.postgresql

QUICK = {
    "loop": {"concurrency": {"value": 4}, "batch": {"size": 20}, "empty_queue": {"backoff": 0.05, "backoff_cap": 0.2}},
    "steps": {"process": {"retry": {"max_attempts": 3, "backoff": 0.01}}},
}


def run(pipeline: Pipeline, letters: int) -> None:
    """Let a running consumer work off two good ones, one that succeeds at the third attempt and one that never does."""
    submit(pipeline, 2)
    (late,) = submit(pipeline, 1, **{"at": 3, "return": "at last"})
    submit(pipeline, 1, fail="no answer")
    eventually(lambda: transactions.find(late).finished_at is not None, "the late one has ended")
    eventually(lambda: DeadLetter.objects.count() == letters, "the dead letters are there")


def test_a_policy_is_edited_with_a_rehearsal_and_obeyed_by_a_running_consumer(inside: Page) -> None:
    make_policy("patient", QUICK)
    orders = make_pipeline("orders", policy="patient")
    with consumer("orders") as worker, consumer(command="maintain") as maintenance:
        wait_until_started(worker)
        run(orders, 1)
        assert Attempt.objects.count() == 8
        inside.goto(f"/admin/engines/policy/{policies.find('patient').pk}/change/")
        # One screen: what is advanced is folded, and says what is no default.
        assert inside.locator("details[open].ergon-section").count() == 0
        inside.get_by_role("button", name="Flaky API").click()
        expect(inside.get_by_text("Flaky API is filled in.")).to_be_visible()
        expect(inside.get_by_label("Max attempts").first).to_have_value("6")
        inside.get_by_label("Max attempts").first.fill("2")
        inside.get_by_label("Backoff", exact=True).first.fill("0.01")
        inside.get_by_role("button", name="Review changes").click()
        expect(inside.locator("ins", has_text="2 attempts")).to_be_visible()
        figures = inside.locator(".ergon-rehearsal tbody tr")
        expect(figures.nth(0)).to_contain_text("2 fewer")
        expect(figures.nth(1)).to_contain_text("1 more")
        expect(inside.get_by_text("Rehearsed with 4 transactions of orders from the last 24 hours.")).to_be_visible()
        expect(inside.get_by_text("1 transaction that succeeded would have become a dead letter.")).to_be_visible()
        assert fits(inside)
        inside.get_by_label("Reason").fill("the supplier asks for fewer calls")
        inside.get_by_role("button", name="Save as version 2").click()
        expect(inside.get_by_text("Version 2 is active.")).to_be_visible()
        run(orders, 3)
        assert Attempt.objects.count() == 8 + 6
        inside.get_by_role("link", name="2", exact=True).first.click()
        expect(inside.get_by_role("heading", name="Rehearsal")).to_be_visible()
        expect(figures.nth(1)).to_contain_text("1 more")
        assert PolicyRehearsal.objects.get(version__number=2).by == "ada"
        for process in (worker, maintenance):
            process.terminate()
            assert process.wait(LIMIT) == 0


def test_a_rehearsal_is_cancelled_when_its_page_is_left_and_not_when_it_is_loaded_again(inside: Page) -> None:
    make_policy("patient", QUICK)
    inside.goto(f"/admin/engines/policy/{policies.find('patient').pk}/change/")
    inside.get_by_label("Max attempts").first.fill("2")
    inside.get_by_role("button", name="Review changes").click()
    expect(inside.get_by_text("are played under this policy")).to_be_visible()
    asked = PolicyRehearsal.objects.get()
    inside.reload()
    expect(inside.get_by_text("are played under this policy")).to_be_visible()
    with inside.expect_response(lambda answer: "/rehearsal/" in answer.url):  # the next look at it
        again = PolicyRehearsal.objects.get()
    assert again.created_at > asked.created_at
    expect(inside.get_by_text("are played under this policy")).to_be_visible()
    before = database_time()
    inside.goto("/admin/")
    eventually(lambda: PolicyRehearsal.objects.get().state == "cancelled", "it is cancelled")
    assert PolicyRehearsal.objects.get().finished_at > before  # type: ignore[operator]
