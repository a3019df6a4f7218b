"""Executors in a real browser."""

import pytest
from playwright.sync_api import Page, expect

from engines import pipelines, transactions
from engines.models import Worker
from tests.browser.looks import everywhere, fits
from tests.executors.telling import beat, process, told, working

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

FAULT = "2026-11-15 08:40:11 executor exited with code 137 (SIGKILL) in the middle of a line: 'node' " + "long" * 60


PROGRAM = "/srv/shop/a/rather/long/way/to/the/interpreter/bin/python"


def a_scene() -> tuple[str, Worker]:
    pipelines.create("reports", pipelines.Plan(executor="python"), by="tests")
    pipelines.create("thumbnails", pipelines.Plan(executor="node"), by="tests")
    pipelines.create("forecasts", pipelines.Plan(executor="julia"), by="tests")
    job = transactions.submit("reports", {"function": "monthly"}, id="report-" + "0123456789" * 8).id
    first = working(told("python", process(4711, job), process(4712), program=PROGRAM, answered=48_210))
    working(told("node", deaths_in_a_row=7, starts_again_in=29.0, last_fault=FAULT), told("python", program=PROGRAM))
    return job, first


@everywhere
def test_executors_are_followed_from_the_menu_to_the_job_in_hand(inside: Page) -> None:
    job, worker = a_scene()
    inside.clock.install()
    inside.goto("/admin/")
    expect(inside.get_by_text("The executor node keeps dying")).to_be_visible()
    assert fits(inside)
    inside.goto("/admin/engines/executor/")
    expect(inside.get_by_role("heading", name="python")).to_be_visible()
    expect(inside.get_by_text("Backing off: restarts in")).to_be_visible()
    assert fits(inside)
    beat(worker, told("python", process(4711, job), process(4799)))
    inside.clock.fast_forward(5000)
    expect(inside.get_by_text("4799")).to_be_visible()
    inside.get_by_role("link", name=job).click()
    expect(inside.get_by_role("heading", name="Payload")).to_be_visible()
    expect(inside.get_by_text("monthly").first).to_be_visible()
    assert fits(inside)


@everywhere
def test_without_executors_the_page_helps(inside: Page) -> None:
    inside.goto("/admin/engines/executor/")
    expect(inside.get_by_role("heading", name="No executor is configured")).to_be_visible()
    assert fits(inside)
