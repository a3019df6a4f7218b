"""Executors in a real browser."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from engines import pipelines, transactions, workers
from engines.models import Worker
from tests.console.test_browser import chromium, everywhere, fits, inside, page

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

__all__ = ["chromium", "inside", "page"]

FAULT = "2026-11-15 08:40:11 executor exited with code 137 (SIGKILL) in the middle of a line: 'node' " + "long" * 60


def told(name: str, processes: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    counts = {"started": 12, "answered": 48_210, "died": 9, "killed": 2, "skipped": 31}
    state = {"deaths_in_a_row": 0, "starts_again_in": 0.0, "last_fault": ""}
    program = "/srv/shop/a/rather/long/way/to/the/interpreter/bin/" + name
    return {"name": name, "program": program, "pool_size": 4, "processes": processes, **counts, **state, **changes}


def process(pid: int, job: str | None = None) -> dict[str, Any]:
    return {"pid": pid, "job": job, "answered": 1200, "since": "2026-11-15T08:00:00+00:00"}


def beat(worker: Worker, *executors: dict[str, Any]) -> None:
    workers.beat(worker.pk, in_flight=1, abandoned=0, settled=9, is_stopping=False, executors=executors)


def a_scene() -> tuple[str, Worker]:
    pipelines.create("reports", pipelines.Plan(executor="python"), by="tests")
    pipelines.create("thumbnails", pipelines.Plan(executor="node"), by="tests")
    pipelines.create("forecasts", pipelines.Plan(executor="julia"), by="tests")
    job = transactions.submit("reports", {"function": "monthly"}, id="report-" + "0123456789" * 8).id
    first, second = workers.enrol(["reports"]), workers.enrol(["thumbnails"])
    beat(first, told("python", [process(4711, job), process(4712)]))
    beat(second, told("node", [], deaths_in_a_row=7, starts_again_in=29.0, last_fault=FAULT), told("python", []))
    return job, first


@everywhere
def test_executors_are_followed_from_the_menu_to_the_job_in_hand(inside: Page) -> None:
    job, worker = a_scene()
    inside.clock.install()
    inside.goto("/admin/engines/executor/")
    expect(inside.get_by_role("heading", name="python")).to_be_visible()
    expect(inside.get_by_text("Backing off: starts again in")).to_be_visible()
    assert fits(inside)
    beat(worker, told("python", [process(4711, job), process(4799)]))
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
