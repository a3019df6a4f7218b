"""Tables with long ids in a real browser: they fit, and an id is whole where it is copied or pointed at."""

import pytest
from playwright.sync_api import Page, expect

from tests.console import records
from tests.factories import make_pipeline

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once


LONG = f"invoice-2026-11-17T10:00:00Z-{'ab12' * 30}-end"
WIDER = "one => one.scrollWidth > one.clientWidth"


@pytest.mark.parametrize("name", ["transactionrecord", "deadletter"])
def test_a_long_id_is_shortened_in_the_middle_and_copied_whole(inside: Page, name: str) -> None:
    orders = make_pipeline("orders")
    records.fail(orders, {}, id="short")
    records.fail(orders, {}, id=LONG, correlation_id="c" * 90)
    inside.goto(f"/admin/engines/{name}/")
    cell = inside.get_by_title(LONG)
    expect(cell).to_have_text("invoice-2026-11-17T1…ab12ab12-end")
    assert not inside.locator(".ergon-list-scroll").evaluate(WIDER)
    heights = inside.locator(".data-row").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert max(heights) < 2 * min(heights)
    copied = """one => {
      getSelection().selectAllChildren(one);
      const event = new ClipboardEvent("copy", { clipboardData: new DataTransfer(), bubbles: true, cancelable: true });
      one.dispatchEvent(event);
      return event.clipboardData.getData("text/plain");
    }"""
    assert cell.evaluate(copied) == LONG
