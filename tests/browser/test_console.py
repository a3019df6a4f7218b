"""Logging in, the dashboard, clients, triage and lists in a real browser."""

import httpx
import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from engines import transactions
from engines.dead_letters import bulk
from tests.browser.looks import everywhere, fits
from tests.console import records
from tests.factories import make_pipeline
from tests.processes import LIMIT, Site

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once


def log_in(page: Page, password: str) -> None:
    page.goto("/")
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


@everywhere
def test_a_person_logs_in_and_sees_the_dashboard(page: Page, administrator: User) -> None:
    log_in(page, "correct horse")
    expect(page.get_by_role("heading", name="Nothing needs attention.")).to_be_visible()
    assert fits(page)


def test_a_wrong_password_is_told(page: Page, administrator: User) -> None:
    log_in(page, "wrong")
    expect(page.get_by_role("alert").get_by_text("Wrong username or password.")).to_be_visible()


def test_the_dashboard_refreshes_itself_and_says_when_it_cannot(inside: Page) -> None:
    inside.clock.install()
    inside.goto("/admin/")
    inside.evaluate("document.querySelector('.ergon-age').textContent = 'old'")
    inside.clock.fast_forward(5000)
    expect(inside.locator(".ergon-age")).to_contain_text("Updated at")
    inside.route("**/admin/live/", lambda route: route.abort())
    inside.clock.fast_forward(5000)
    expect(inside.locator("[data-stale]")).to_be_visible()


def make_client(inside: Page) -> dict[str, str]:
    inside.goto("/admin/access/apiclient/add/")
    inside.get_by_label("Name").fill("press")
    inside.get_by_label("platform").check()
    inside.get_by_role("button", name="Create API client", exact=True).click()
    token = inside.locator("#token").inner_text()
    inside.get_by_role("link", name="I have copied it").click()
    inside.wait_for_url("**/change/")
    return {"Authorization": f"Bearer {token}"}


@everywhere
def test_an_administrator_makes_a_client_and_its_token_works(inside: Page, site: Site) -> None:
    headers = make_client(inside)
    assert fits(inside)
    assert httpx.get(f"{site.url}/api/v1/client", headers=headers, timeout=LIMIT).json()["scopes"] == ["platform"]


def test_an_administrator_switches_a_client_off_and_the_reason_is_kept(inside: Page, site: Site) -> None:
    headers = make_client(inside)
    inside.get_by_role("button", name="Disable").click()
    inside.get_by_label("Reason").fill("lost laptop")
    inside.get_by_role("dialog").get_by_role("button", name="Disable the client").click()
    expect(inside.get_by_text("its tokens are refused from now on")).to_be_visible()
    assert httpx.get(f"{site.url}/api/v1/client", headers=headers, timeout=LIMIT).status_code == 401
    inside.goto("/admin/access/auditentry/")
    expect(inside.get_by_text("lost laptop").first).to_be_visible()


def test_the_api_reference_is_readable(page: Page) -> None:
    page.goto("/api/docs/")
    expect(page.get_by_text("/api/v1/client").first).to_be_visible()


@everywhere
def test_a_person_triages_a_dead_letter(inside: Page) -> None:
    """From the dashboard to the kind of failure, to one letter, to an edited replay that knows where it comes from."""
    orders = make_pipeline("orders", redacted=["card"])
    payload = {"iban": "DE00", "card": "4111"}
    letter = records.fail(orders, payload, records.failure("slow"), records.failure("IBAN 7 is wrong"))
    inside.goto("/admin/")
    inside.get_by_role("link", name="1 failed with ConnectionError: IBAN # is wrong").click()
    inside.get_by_role("link", name=letter.uid).first.click()
    expect(inside.get_by_text("needs a decision")).to_be_visible()
    expect(inside.get_by_text("attempt 2 of 2")).to_be_visible()
    assert fits(inside)
    inside.get_by_role("link", name="Edit and replay").click()
    editor = inside.get_by_label("Payload")
    assert "4111" not in editor.input_value()
    editor.fill(editor.input_value().replace("DE00", "DE89"))
    inside.get_by_label("Reason").fill("the customer sent the right one")
    inside.get_by_role("button", name="Show changes").click()
    expect(inside.locator("ins")).to_have_text('"DE89"')
    assert fits(inside)
    inside.get_by_role("button", name="Replay with this payload").click()
    expect(inside.get_by_role("heading", name="Edited payload")).to_be_visible()
    expect(inside.locator("del")).to_have_text('"DE00"')
    inside.get_by_role("link", name=letter.uid).click()
    inside.get_by_role("link", name="its dead letter is replayed").click()
    expect(inside.get_by_text("(reason: the customer sent the right one)")).to_be_visible()


def test_a_group_is_replayed_and_followed(inside: Page) -> None:
    orders = make_pipeline("orders")
    letters = [records.fail(orders, {"n": number}) for number in range(3)]
    inside.clock.install()
    inside.goto(f"/admin/engines/deadlettergroup/{letters[0].group_id}/change/")
    inside.get_by_role("button", name="Replay all").click()
    expect(inside.get_by_text("This applies to 3 unresolved dead letters")).to_be_visible()
    inside.get_by_label("Canary").fill("3")
    inside.get_by_label("Reason").fill("the bank is back")
    inside.get_by_role("dialog").get_by_role("button", name="Replay all").click()
    expect(inside.get_by_text("Running: 0 of 3 dead letters.")).to_be_visible()
    bulk.advance()
    inside.clock.fast_forward(5000)
    expect(inside.get_by_text("Running: 3 of 3 dead letters; 3 still running.")).to_be_visible()
    inside.get_by_role("button", name="Pause", exact=True).click()
    inside.get_by_label("Reason").fill("enough for today")
    inside.get_by_role("dialog").get_by_role("button", name="Pause the bulk operation").click()
    expect(inside.get_by_text("Paused: 3 of 3 dead letters; 3 still running.")).to_be_visible()


def test_a_list_refreshes_itself_and_says_when_it_cannot(inside: Page) -> None:
    make_pipeline("orders")
    transactions.submit("orders", {}, id="first")
    inside.clock.install()
    inside.goto("/admin/engines/transactionrecord/")
    transactions.submit("orders", {}, id="second")
    inside.clock.fast_forward(5000)
    expect(inside.get_by_role("link", name="second")).to_be_visible()
    inside.route("**/admin/engines/transactionrecord/", lambda route: route.abort())
    inside.clock.fast_forward(5000)
    expect(inside.locator("[data-stale]")).to_be_visible()
