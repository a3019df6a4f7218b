"""Charts in a real browser: values under the pointer, a dragged range and the way back, in light and dark."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from engines import pipelines
from engines.models import Durations, Pipeline, WaitingSample
from engines.reads.depth import ALL_PIPELINES
from tests.browser.looks import everywhere, fits
from tests.factories import ThroughputFactory, WaitingSampleFactory, make_pipeline

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

REFRESH = """async () => {
  const part = document.querySelector("[data-live]");
  part.innerHTML = await (await fetch(part.dataset.live)).text();
}"""
PICTURE = "() => document.querySelector('.ergon-chart-plot canvas').toDataURL()"


def an_hour_of(pipeline: Pipeline) -> None:
    """A steady hour with one spike, and samples that were not taken for a while."""
    now = timezone.now().replace(second=0, microsecond=0)
    for ago in range(60):
        minute, count = now - timedelta(minutes=ago), 900 if ago == 20 else 10
        ThroughputFactory.create(pipeline=pipeline, minute=minute, succeeded=count, failed=ago % 3, longest=0.5)
        Durations.objects.create(pipeline_id=pipeline.pk, minute=minute, longest=0.5, took_4=count, took_8=1)
    samples = [
        WaitingSampleFactory.build(pipeline_id=of, minute=now - timedelta(minutes=ago), waiting=ago, oldest_age=ago)
        for of in (ALL_PIPELINES, pipeline.pk)
        for ago in range(60)
        if not 30 < ago < 40
    ]
    WaitingSample.objects.bulk_create(samples)


@everywhere
def test_a_chart_tells_values_zooms_and_outlives_refreshes(inside: Page) -> None:
    orders = make_pipeline("orders")
    an_hour_of(orders)
    pipelines.pause("orders", by="ada", reason="the bank moves")
    asked: list[str] = []
    inside.on("request", lambda made: asked.append(made.url))
    inside.goto(f"/admin/engines/pipeline/{orders.pk}/change/")
    finished, took, backlog = (
        inside.locator("figure").filter(has_text=title) for title in ("Finished per minute", "Time taken", "Backlog")
    )
    # A minute may have ended since.
    expect(finished).to_contain_text(re.compile(r"1,4\d0 succeeded, \d+ failed; at most 902 per minute\."))
    assert not any("chart.js" in address for address in asked)
    # One spike hides the rest of the counts, not of the times.
    expect(finished.get_by_label("Log scale")).to_be_checked()
    expect(took.get_by_label("Log scale")).not_to_be_checked()
    expect(backlog).to_contain_text("Shaded: no samples.")
    mark = finished.get_by_label("pipeline orders: paused by ada")
    expect(mark).to_have_attribute("href", re.compile("/admin/access/auditentry/"))
    assert fits(inside)

    over = took.locator(".u-over")
    over.hover(position={"x": 100, "y": 60})
    expect(took.locator(".ergon-chart-tip")).to_contain_text(re.compile(r"UTC.*p50 \d+ ms.*p95 \d+ ms.*max 500 ms"))

    # A refresh of the page leaves what was drawn, and what was opened, as they are.
    inside.get_by_text("Table", exact=True).click()
    expect(inside.get_by_role("columnheader", name="Time taken: p95")).to_be_visible()
    inside.evaluate("document.querySelector('.ergon-chart-plot canvas').dataset.kept = 'yes'")
    inside.evaluate(REFRESH)
    expect(inside.locator("canvas[data-kept=yes]")).to_be_visible()
    expect(inside.get_by_role("columnheader", name="Time taken: p95")).to_be_visible()
    expect(inside.locator(".ergon-chart-table tbody tr")).to_have_count(60)

    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    inside.mouse.move(box["x"] + 60, box["y"] + 60)
    inside.mouse.down()
    inside.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60, steps=5)
    inside.mouse.up()
    expect(inside).to_have_url(re.compile(r"\?from=\d+&to=\d+$"))
    expect(inside.locator(".ergon-chart-table tbody tr")).not_to_have_count(60)
    # Whoever is given the address sees the same.
    inside.reload()
    inside.get_by_role("button", name="Zoom out").click()
    expect(inside).to_have_url(re.compile(r"\?range=hour$"))
    expect(finished).to_contain_text(re.compile(r"1,4\d0 succeeded"))
    inside.get_by_role("button", name="Day").click()
    expect(inside.get_by_text("Finished per 10 min")).to_be_visible()
    expect(inside.get_by_role("button", name="Day")).to_have_attribute("aria-pressed", "true")
    expect(inside).to_have_url(re.compile(r"\?range=day$"))

    # Colours are those of the look, also when it changes.
    drawn = inside.evaluate(PICTURE)
    inside.evaluate("document.documentElement.classList.toggle('dark')")
    inside.wait_for_function(f"drawn => ({PICTURE})() !== drawn", arg=drawn)
    assert fits(inside)


def test_charts_that_cannot_be_had_say_so_and_empty_ones_too(inside: Page) -> None:
    make_pipeline("orders")
    inside.goto("/admin/?range=week")
    expect(inside.get_by_text("Nothing to draw in this range.")).to_have_count(4)
    expect(inside.get_by_text("None.", exact=True)).to_be_visible()
    inside.goto("/admin/?from=1&to=2")
    expect(inside.get_by_text("Charts go back 8 days.")).to_be_visible()
    inside.route("**/admin/series/?**", lambda route: route.abort())
    inside.goto("/admin/")
    expect(inside.get_by_text("The charts could not be loaded.")).to_be_visible()
