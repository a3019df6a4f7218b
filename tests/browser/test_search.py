"""Finding things by keyboard in a real browser: palette, suggestions, chips, saved views, keys."""

import os
from collections.abc import Callable

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import BrowserContext, Page, expect

from tests.console import records
from tests.factories import make_pipeline
from tests.processes import Site

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

SHOTS = os.environ.get("FIND_SHOTS")


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png")


LIST = "/admin/engines/transactionrecord/"


def test_everything_is_found_by_keyboard(
    inside: Page, context: BrowserContext, site: Site, hire: Callable[[str], User]
) -> None:
    invoices, orders = make_pipeline("invoices"), make_pipeline("orders")
    for number in range(3):
        records.fail(invoices, {"order": {"id": number}}, records.failure("read timeout"), id=f"late-{number}")
    records.succeed(orders, {}, id="went-well")
    find_by_palette(inside)
    search_with_suggestions(inside)
    go_through_rows(inside)
    save_view(inside)
    other = Client()
    other.force_login(hire("viewer"))
    session = other.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": site.url}])
    open_view_and_remove_chips(inside)


def find_by_palette(inside: Page) -> None:
    """Ctrl-K, the start of an id, Enter; lines by arrows; Escape gives the focus back."""
    inside.goto("/admin/")
    inside.keyboard.press("Control+k")
    palette = inside.get_by_role("dialog", name="Search everything")
    field = palette.get_by_role("combobox")
    expect(field).to_be_focused()
    expect(palette.get_by_role("option", name="Transactions")).to_be_visible()
    shot(inside, "palette-empty")
    inside.keyboard.type("late-1")
    first = palette.get_by_role("option").first
    expect(first).to_contain_text("late-1")
    shot(inside, "palette")
    inside.keyboard.press("Enter")
    expect(inside).to_have_title("late-1 | Ergon")
    opener = inside.get_by_role("button", name="Search everything")
    opener.focus()
    inside.keyboard.press("Enter")
    inside.keyboard.type("invoices")
    expect(palette.get_by_role("option", name="Pause invoices…")).to_be_visible()
    expect(palette.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    inside.keyboard.press("ArrowUp")
    expect(palette.get_by_role("option").last).to_have_attribute("aria-selected", "true")
    inside.keyboard.press("Escape")
    expect(palette).to_be_hidden()
    expect(opener).to_be_focused()


def search_with_suggestions(inside: Page) -> None:
    inside.goto(LIST)
    inside.keyboard.press("/")
    search = inside.get_by_role("combobox", name="Search transactions")
    expect(search).to_be_focused()
    inside.keyboard.type("pip")
    inside.keyboard.press("ArrowDown")
    inside.keyboard.press("Enter")
    expect(search).to_have_value("pipeline:")
    shot(inside, "suggestions")
    inside.keyboard.type("inv")
    inside.keyboard.press("ArrowDown")
    inside.keyboard.press("Enter")
    expect(search).to_have_value("pipeline:invoices ")
    inside.keyboard.type("state:failed error:timeout")
    inside.keyboard.press("Enter")
    chips = inside.get_by_role("list", name="Chosen filters")
    expect(chips.get_by_role("link")).to_have_count(3)
    expect(inside.locator("#result_list tbody")).to_have_count(3)
    shot(inside, "chips")


def go_through_rows(inside: Page) -> None:
    """Rows, the box of a row, replaying it, and the list of keys with its switch."""
    inside.locator("body").press("j")
    expect(inside.get_by_role("link", name="late-2")).to_be_focused()
    inside.keyboard.press("j")
    inside.keyboard.press("j")
    inside.keyboard.press("k")
    expect(inside.get_by_role("link", name="late-1")).to_be_focused()
    shot(inside, "row")
    inside.evaluate(
        "document.querySelectorAll('#result_list tbody tr').forEach(row => {"
        "if (!row.querySelector('.action-select')) row.lastElementChild.insertAdjacentHTML("
        "'beforeend', '<input type=checkbox class=action-select aria-label=Select>') })"
    )
    inside.keyboard.press("x")
    expect(inside.locator(".action-select:checked")).to_have_count(1)
    inside.keyboard.press("x")
    inside.get_by_role("link", name="late-1").focus()
    inside.keyboard.press("r")
    replay = inside.get_by_role("dialog", name="Replay the transaction")
    expect(replay.get_by_label("Reason")).to_be_focused()
    inside.keyboard.type("jk?/x")
    expect(replay.get_by_label("Reason")).to_have_value("jk?/x")
    inside.keyboard.press("Escape")
    expect(inside.get_by_role("link", name="late-1")).to_be_focused()
    inside.keyboard.press("?")
    keys = inside.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_be_visible()
    shot(inside, "keys")
    keys.get_by_label("Use shortcuts of a single key").uncheck()
    inside.keyboard.press("Escape")
    inside.keyboard.press("j")
    inside.keyboard.press("?")
    expect(keys).to_be_hidden()
    expect(inside.get_by_role("link", name="late-1")).to_be_focused()
    inside.evaluate("localStorage.removeItem('ergonKeys')")


def save_view(inside: Page) -> None:
    inside.get_by_text("Save this view").click()
    inside.get_by_label("Name of the view").fill("Late invoices")
    inside.get_by_label("Share with everybody").check()
    inside.get_by_role("button", name="Save", exact=True).click()
    expect(inside.get_by_role("link", name="Late invoices")).to_have_attribute("aria-current", "true")
    shot(inside, "view")


def open_view_and_remove_chips(inside: Page) -> None:
    """As a viewer, who is told why the key r does nothing."""
    inside.goto(LIST)
    expect(inside.locator("#result_list tbody")).to_have_count(4)
    inside.get_by_role("link", name="Late invoices").click()
    expect(inside.locator("#result_list tbody")).to_have_count(3)
    inside.locator("body").press("j")
    inside.keyboard.press("r")
    expect(inside.get_by_role("status").filter(has_text="Needs the role operator")).to_be_visible()
    inside.get_by_role("link", name="pipeline: invoices , remove").click()
    inside.get_by_role("link", name="state: failed , remove").click()
    inside.get_by_role("link", name="error: timeout , remove").click()
    expect(inside.locator("#result_list tbody")).to_have_count(4)
