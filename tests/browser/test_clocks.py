"""Clocks that are wrong: what pages say and decide goes by the database's, not by the browser's or the web server's."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx
import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page, expect

from engines import pipelines, transactions
from ergon_site.access.database import clock
from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AcknowledgedItem
from providers.models import Gate
from tests.factories import make_pipeline
from tests.processes import LIMIT, Site, serve, wrong_clock

pytestmark = pytest.mark.postgresql

LIST = "/admin/engines/transactionrecord/"
WRONG = timedelta(minutes=10)
A_MOMENT_AGO = re.compile(r"^(now|\d+ s ago|[1-3] min ago)$")


@pytest.mark.parametrize("wrong", [WRONG, -WRONG], ids=["ahead", "behind"])
def test_a_browser_whose_clock_is_wrong_or_is_set_shows_the_same_ages_and_goes_on_refreshing(
    inside: Page, wrong: timedelta
) -> None:
    make_pipeline("orders")
    transactions.submit("orders", {}, id="first")
    inside.clock.install(time=database_time() + wrong)
    inside.goto(LIST)
    expect(inside.locator("td time").first).to_have_text(A_MOMENT_AGO)
    transactions.submit("orders", {}, id="second")
    inside.clock.set_system_time(database_time() - 6 * wrong)
    inside.clock.fast_forward(5000)
    expect(inside.get_by_role("link", name="second")).to_be_visible()
    inside.clock.fast_forward(1000)
    expect(inside.locator("td time").first).to_have_text(A_MOMENT_AGO)
    expect(inside.locator(".ergon-live")).to_contain_text("Live")


@pytest.fixture(params=["+10m", "-10m"])
def wrong_site(request: pytest.FixtureRequest, site: Site) -> Iterator[Site]:
    """A web server on a host whose clock is wrong."""
    with serve(None, **wrong_clock(request.param)) as served:
        yield served
        # The library that sets its clock is no good at waits with a limit: asked to end, it sometimes never does.
        for process in served.processes():
            process.kill()


@pytest.fixture
def visitor(wrong_site: Site, browse: Client) -> Iterator[httpx.Client]:
    cookies = {settings.SESSION_COOKIE_NAME: browse.cookies[settings.SESSION_COOKIE_NAME].value}
    with httpx.Client(base_url=wrong_site.url, cookies=cookies, timeout=LIMIT, follow_redirects=True) as client:
        yield client


def test_a_web_server_whose_clock_is_wrong_tells_and_decides_by_the_databases(visitor: httpx.Client) -> None:
    orders = make_pipeline("orders")
    pipelines.pause("orders", by="ada", reason="the bank moves")
    orders.refresh_from_db()
    assert orders.paused_at is not None
    soon = database_time() + WRONG / 2
    known = {"cause": orders.paused_at.isoformat(), "severity": 3, "count": 9, "is_capped": False, "by": "ada"}
    AcknowledgedItem.objects.create(key=f"paused:{orders.pk}", until=soon, at=database_time(), **known)
    page = visitor.get("/admin/")
    assert "1 acknowledged" in page.text
    refreshed = visitor.get("/admin/live/", headers={"X-Ergon-Refresh": "1"})
    for told in (re.findall(r'data-served-at="(.*?)"', page.text)[0], refreshed.headers["X-Ergon-Time"]):
        assert abs(datetime.fromisoformat(told) - database_time()) < WRONG / 2
    AcknowledgedItem.objects.update(until=database_time() - WRONG / 2)
    assert "acknowledged" not in visitor.get("/admin/live/").text


def test_an_override_ends_when_its_author_said_whatever_the_web_servers_clock_says(visitor: httpx.Client) -> None:
    gate = Gate.objects.create(tenant_id="acme", provider_name="rank", capability="rank_snapshot")
    address = f"/admin/providers/gate/{gate.pk}/force-open/"
    token = re.findall(r'name="csrfmiddlewaretoken" value="(.*?)"', visitor.get(address).text)[0]
    until = (database_time() + WRONG / 2).replace(second=0, microsecond=0)
    sent = {
        "_form_submitted": "on",
        "reason": "the supplier moves",
        "minutes": "30",
        "until": f"{until:%Y-%m-%dT%H:%M}",
    }
    visitor.post(address, data={**sent, "csrfmiddlewaretoken": token}, headers={"Referer": str(visitor.base_url)})
    gate.refresh_from_db()
    assert gate.override == "open"
    assert abs(gate.override_until - until.timestamp()) < 60  # type: ignore[operator]


@pytest.mark.django_db
def test_pages_count_on_for_a_minute_and_then_ask_the_database_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = database_time() - 6 * WRONG
    clock.note(wrong)
    assert wrong <= clock.page_time() < wrong + WRONG
    monkeypatch.setattr(clock, "KEPT_FOR", 0.0)
    assert abs(clock.page_time() - database_time()) < WRONG
