"""The console by keyboard and without script, in a real browser: dialogs, filters, menus, and their roles."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, Locator, Page, expect

from engines import pipelines, transactions
from engines.models import Pipeline
from engines.pipelines import Plan
from tests.browser.looks import everywhere, fits
from tests.console import records
from tests.factories import make_pipeline
from tests.processes import Site

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

TABS = 12
IS_IN_DIALOG = "dialog => dialog.contains(document.activeElement) || document.activeElement === document.body"
# Looked at as the dialog closes: from then on the page may refresh itself at any moment.
MARK = """
const sentence = () => document.querySelector('.ergon-sentence')
sentence().textContent = 'as it was'
document.querySelector('dialog[open]').addEventListener('close', () => {
  document.documentElement.dataset.told = sentence().textContent
})
"""


@pytest.fixture
def plain(chromium: Browser, browse: Client, site: Site) -> Iterator[Page]:
    """A page that is logged in and runs no script."""
    session = browse.cookies[settings.SESSION_COOKIE_NAME].value
    context = chromium.new_context(base_url=site.url, java_script_enabled=False)
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": site.url}])
    yield context.new_page()
    context.close()


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until something has the focus."""
    for _ in range(60):
        if wanted.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    expect(wanted).to_be_focused()


def keep_the_focus(page: Page, dialog: Locator, opener: Locator) -> None:
    """A dialog has the focus until Escape gives it back to what opened it."""
    for _ in range(TABS):
        page.keyboard.press("Tab")
        assert dialog.evaluate(IS_IN_DIALOG)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()


def pipeline_page() -> str:
    pipeline = pipelines.create("invoices", Plan(task="invoices.import"), by="tests")
    return f"/admin/engines/pipeline/{pipeline.pk}/change/"


@everywhere
def test_a_dialog_takes_the_focus_keeps_it_and_gives_it_back(inside: Page) -> None:
    inside.goto(pipeline_page())
    opener = inside.get_by_role("button", name="Pause", exact=True)
    opener.focus()
    inside.keyboard.press("Enter")
    dialog = inside.get_by_role("dialog", name="Pause the pipeline")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_label("Reason")).to_be_focused()
    assert fits(inside)
    keep_the_focus(inside, dialog, opener)
    inside.keyboard.press("Enter")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    tab_to(inside, dialog.get_by_role("button", name="Go back"))
    inside.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    assert not Pipeline.objects.get().is_paused


def test_a_dialog_is_filled_in_and_sent_by_keyboard_and_its_button_names_the_act(inside: Page) -> None:
    inside.goto(pipeline_page())
    tab_to(inside, inside.get_by_role("button", name="Pause", exact=True))
    inside.keyboard.press("Enter")
    dialog = inside.get_by_role("dialog", name="Pause the pipeline")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    act = dialog.get_by_role("button", name="Pause the pipeline")
    tab_to(inside, act)
    inside.keyboard.press("Enter")
    expect(dialog.get_by_text("This field is required.")).to_be_visible()
    expect(dialog.get_by_label("Reason")).to_be_focused()
    inside.keyboard.type("maintenance")
    tab_to(inside, act)
    inside.keyboard.press("Enter")
    expect(inside.locator(".ergon-notice")).to_contain_text("maintenance")
    assert Pipeline.objects.get().is_paused


def test_a_dialog_whose_answer_fails_says_so(inside: Page) -> None:
    inside.goto(pipeline_page())
    inside.get_by_role("button", name="Pause", exact=True).click()
    dialog = inside.get_by_role("dialog", name="Pause the pipeline")
    dialog.get_by_label("Reason").fill("maintenance")
    inside.route("**/pause/", lambda route: route.fulfill(status=503))
    dialog.get_by_role("button", name="Pause the pipeline").click()
    expect(dialog.get_by_role("alert")).to_contain_text("503")
    expect(dialog.get_by_label("Reason")).to_have_value("maintenance")


def test_a_page_does_not_refresh_itself_under_an_open_dialog(inside: Page) -> None:
    """Else the button that the focus returns to would be gone."""
    make_pipeline("orders")
    record = transactions.find(transactions.submit("orders", {}).id)
    inside.clock.install()
    inside.goto(f"/admin/engines/transactionrecord/{record.pk}/change/")
    opener = inside.get_by_role("button", name="Cancel", exact=True)
    opener.click()
    dialog = inside.get_by_role("dialog", name="Cancel the transaction")
    expect(dialog.get_by_role("button", name="Cancel the transaction")).to_be_visible()
    inside.evaluate(MARK)
    inside.clock.fast_forward(5000)
    inside.evaluate("fetch(location.href).then(answer => answer.text())")  # a refresh would have taken no longer
    inside.keyboard.press("Escape")
    expect(opener).to_be_focused()
    expect(inside.locator("html")).to_have_attribute("data-told", "as it was")


def test_a_dialog_works_without_script(plain: Page) -> None:
    plain.goto(pipeline_page())
    plain.get_by_role("button", name="Pause", exact=True).click()
    expect(plain.get_by_role("heading", name="Pause the pipeline")).to_be_visible()
    plain.get_by_role("button", name="Pause the pipeline").click()
    expect(plain.get_by_text("This field is required.")).to_be_visible()
    plain.get_by_label("Reason").fill("maintenance")
    plain.get_by_role("button", name="Pause the pipeline").click()
    expect(plain.locator(".ergon-notice")).to_contain_text("maintenance")
    plain.get_by_role("button", name="Resume", exact=True).click()
    plain.get_by_role("link", name="Go back").click()
    expect(plain.get_by_role("button", name="Resume", exact=True)).to_be_visible()


@everywhere
def test_filters_are_opened_chosen_and_closed_by_keyboard(inside: Page) -> None:
    orders = make_pipeline("orders")
    records.succeed(orders, {}, id="went-well")
    records.fail(orders, {}, id="went-badly")
    inside.goto("/admin/engines/transactionrecord/")
    opener = inside.get_by_role("button", name="Filters")
    tab_to(inside, opener)
    inside.keyboard.press("Enter")
    dialog = inside.get_by_role("dialog", name="Filters")
    expect(dialog).to_be_visible()
    assert fits(inside)
    expect(dialog.locator(":focus")).to_have_count(1)
    keep_the_focus(inside, dialog, opener)
    inside.keyboard.press("Enter")
    tab_to(inside, dialog.get_by_label("State"))
    inside.keyboard.type("failed")
    inside.keyboard.press("Enter")
    tab_to(inside, dialog.get_by_role("button", name="Apply"))
    inside.keyboard.press("Enter")
    expect(inside.get_by_role("link", name="went-well")).to_have_count(0)
    expect(inside.get_by_role("link", name="went-badly")).to_be_visible()


def test_filters_work_without_script(plain: Page) -> None:
    orders = make_pipeline("orders")
    records.succeed(orders, {}, id="went-well")
    records.fail(orders, {}, id="went-badly")
    plain.goto("/admin/engines/transactionrecord/")
    plain.get_by_role("dialog").get_by_label("State").select_option("failed")
    plain.get_by_role("button", name="Apply").click()
    expect(plain.get_by_role("link", name="went-well")).to_have_count(0)
    expect(plain.get_by_role("link", name="went-badly")).to_be_visible()


def test_the_sidebar_and_the_user_menu_are_opened_by_keyboard(inside: Page) -> None:
    inside.goto("/admin/")
    toggle = inside.get_by_role("button", name="Sidebar")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    tab_to(inside, toggle)
    inside.keyboard.press("Enter")
    expect(inside.get_by_role("link", name="Transactions").first).to_be_hidden()
    expect(toggle).to_have_attribute("aria-expanded", "false")
    inside.keyboard.press("Enter")
    expect(inside.get_by_role("link", name="Transactions").first).to_be_visible()
    here = inside.get_by_role("navigation", name="Sidebar").get_by_role("link", name="Dashboard", exact=True)
    expect(here).to_have_attribute("aria-current", "page")
    menu = inside.get_by_role("button", name="ada", exact=True)
    menu.focus()
    inside.keyboard.press("Enter")
    dark = inside.get_by_role("button", name="Dark")
    tab_to(inside, dark)
    inside.keyboard.press("Enter")
    expect(dark).to_have_attribute("aria-pressed", "true")
    inside.keyboard.press("Escape")
    expect(dark).to_be_hidden()
    expect(menu).to_be_focused()
    inside.evaluate("localStorage.clear()")
    inside.keyboard.press("Enter")
    tab_to(inside, inside.get_by_role("button", name="Log out"))
    inside.keyboard.press("Enter")
    expect(inside.get_by_role("heading", name="You are logged out")).to_be_visible()


@pytest.mark.parametrize("context", ["narrow light"], indirect=True)
def test_on_a_narrow_screen_the_sidebar_takes_the_focus_and_gives_it_back(inside: Page) -> None:
    inside.goto("/admin/")
    toggle = inside.get_by_role("button", name="Sidebar")
    tab_to(inside, toggle)
    inside.keyboard.press("Enter")
    sidebar = inside.get_by_role("navigation", name="Sidebar")
    expect(sidebar).to_be_visible()
    expect(sidebar.get_by_role("button", name="Close the sidebar")).to_be_focused()
    inside.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    expect(toggle).to_be_focused()
