"""The console by keyboard and by ear, in a real browser: axe, landmarks, the focus, the way to a row."""

from collections.abc import Iterable
from importlib.resources import files
from itertools import cycle

import pytest
from playwright.sync_api import Page, expect

from engines import policies, transactions
from engines.models import BulkOperation, DeadLetter, Pipeline, Policy, TransactionRecord, Worker
from ergon_site.access.models import AuditEntry
from facts.models import Boundary
from providers.models import Gate
from tests.console import scene

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once

LISTS = (
    *("engines/transactionrecord", "engines/deadlettergroup", "engines/pipeline", "engines/worker", "engines/executor"),
    *("providers/gate", "facts/boundary", "facts/fact", "access/apiclient", "access/auditentry"),
)
ROWS = (Pipeline, Policy, TransactionRecord, DeadLetter, BulkOperation, Worker, Gate, Boundary, AuditEntry)
# What depends on the colours, and what depends on the width: the rest is the same in each look.
LOOKS = {
    "light": (1440, "light", "axe.run()"),
    "dark": (1440, "dark", "axe.run({runOnly: ['color-contrast', 'link-in-text-block']})"),
    "narrow": (390, "light", "axe.run({rules: {'color-contrast': {enabled: false}}})"),
}
TOLD = "found => found.violations.map(one => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`)"
# Whether the focus can be seen: on the element itself, or on what is right around a field to type in.
IS_SEEN = """() => {
  const outline = (one) => getComputedStyle(one ?? document.body);
  const seen = (one) => outline(one).outlineStyle !== "none" && parseFloat(outline(one).outlineWidth) >= 1;
  const here = document.activeElement;
  return here === document.body || seen(here) || seen(here.parentElement) || seen(here.parentElement?.parentElement);
}"""


def addresses() -> list[str]:
    rows = [(model._meta, model._default_manager.latest("pk")) for model in ROWS]
    changes = [f"/admin/{meta.app_label}/{meta.model_name}/{row.pk}/change/" for meta, row in rows]
    return ["/admin/", *(f"/admin/{name}/" for name in LISTS), *changes, "/admin/nowhere/"]


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["short", "long"])
def test_axe_finds_nothing_in_light_in_dark_and_on_a_narrow_screen(inside: Page, *, is_long: bool) -> None:
    """The short form looks at each page in light, and in turn in dark or on a narrow screen."""
    scene.fill()
    found = []
    assert len(addresses()) > 20
    for address, other in zip(addresses(), cycle(["dark", "narrow"]), strict=False):
        inside.goto(address)
        found += [f"{address} {one}" for one in violations(inside, LOOKS if is_long else ["light", other])]
        counts = inside.evaluate("['main', 'h1', 'header'].map(name => document.querySelectorAll(name).length)")
        assert counts == [1, 1, 1], address
    assert found == []


def test_axe_finds_nothing_on_refused_forms_and_on_a_review(inside: Page) -> None:
    policies.write("patient", {}, kind="consumer", by="ada", reason="for the slow provider")
    found = {}
    for address, button in {
        "/admin/password_change/": "Change password",
        "/admin/auth/user/add/": "Create user",
    }.items():
        inside.goto(address)
        inside.get_by_role("button", name=button).click()
        inside.get_by_text("Not saved").wait_for()
        found[address] = violations(inside)
    inside.goto("/admin/engines/policy/")
    inside.get_by_role("link", name="patient", exact=True).click()
    inside.get_by_label("Max attempts").first.fill("9")
    inside.get_by_role("button", name="Review changes").click()
    inside.get_by_role("heading", name="Changes from version 1").wait_for()
    found["review"] = violations(inside)
    inside.context.clear_cookies()
    inside.goto("/admin/login/")
    inside.get_by_label("Username").fill("nobody")
    inside.get_by_label("Password").fill("nothing")
    inside.get_by_role("button", name="Log in").click()
    inside.get_by_text("Wrong username or password.").wait_for()
    found["login"] = violations(inside)
    assert [f"{place} {one}" for place, several in found.items() for one in several] == []


def violations(inside: Page, looks: Iterable[str] = LOOKS) -> list[str]:
    """What axe finds on the page in each of these looks."""
    inside.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    found = []
    for look in looks:
        width, scheme, run = LOOKS[look]
        inside.set_viewport_size({"width": width, "height": 900})
        inside.evaluate("is => document.documentElement.classList.toggle('dark', is)", scheme == "dark")
        found += [f"{look} {one}" for one in inside.evaluate(f"() => {run}.then({TOLD})")]
    return found


def test_a_row_is_three_tabs_away_and_the_focus_is_seen_on_the_way(inside: Page) -> None:
    scene.fill()
    transactions.submit("orders", {}, id="waits-for-nobody")
    inside.goto("/admin/engines/transactionrecord/")
    tabs = _tabs_to(inside, "a.ergon-skip")
    inside.keyboard.press("Enter")
    tabs += _tabs_to(inside, "#result_list tbody *")
    assert tabs <= 3
    inside.goto("/admin/engines/transactionrecord/")
    _tabs_to(inside, "nav#nav-sidebar-inner a")
    inside.get_by_role("link", name="waits-for-nobody").focus()
    inside.keyboard.press("Enter")
    inside.get_by_role("button", name="Cancel", exact=True).click()
    dialog = inside.get_by_role("dialog", name="Cancel the transaction")
    act = dialog.get_by_role("button", name="Cancel the transaction")
    expect(act).to_have_class("ergon-button ergon-button-danger")
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_be_hidden()
    expect(inside.get_by_role("button", name="Cancel", exact=True)).to_be_focused()


def _tabs_to(page: Page, wanted: str) -> int:
    """Press Tab until the focus is there; how often. On the way the focus is always seen."""
    for count in range(1, 80):
        page.keyboard.press("Tab")
        assert page.evaluate(IS_SEEN), page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
            return count
    pytest.fail(f"Tab does not lead to {wanted}")
