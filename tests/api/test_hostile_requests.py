"""Whatever is asked, at whichever address: the answer is never that the server has failed."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from ergon_site.access.console.lists import KeysetPage
from tests.api import hostile
from tests.processes import LIMIT, Site

pytestmark = pytest.mark.django_db

# Which the admin, or its theme, knows at any address.
KNOWN = ["p", "o", "q", "s", "all", "e", "at", "page", "_facets", "_popup", "_to_field", "_changelist_filters"]
DIALOG = "_form_submitted=on&reason=x%00"


class Walk:
    """Asks, and remembers what the server failed at.

    The short form asks every other address, on either database the other half, each with a few of the values, the next
    one with the next few. The long form asks all with all.
    """

    def __init__(self, client: Client, *, is_long: bool) -> None:
        self.client, self.is_long = client, is_long
        self.half = slice(None) if is_long else slice(connection.vendor == "sqlite", None, 2)
        self.failures: list[str] = []
        self.turn = 0

    def some(self, values: Iterable[Any], count: int = 1) -> list[Any]:
        found = list(values)
        if self.is_long or not found:
            return found
        self.turn += count
        return [found[(self.turn + place) % len(found)] for place in range(count)]

    def ask(self, address: str, query: dict[str, str] | None = None, method: str = "GET", body: str = "") -> None:
        asked = f"{address}?{urlencode(query, errors='surrogatepass')}" if query else address
        kind = "application/json" if address.startswith("/api/") else "application/x-www-form-urlencoded"
        answer: Any = self.client.generic(method, asked, body, content_type=kind)
        if answer.streaming:
            list(answer.streaming_content)
        if answer.status_code >= 500:
            self.failures.append(f"{method} {asked[:200]}: {answer.status_code}")


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.soak)], ids=["short", "long"])
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def console(administrator: User, *, is_long: bool) -> Walk:
    hostile.a_row_of_everything()
    client = Client(raise_request_exception=False)
    client.force_login(administrator)
    return Walk(client, is_long=is_long)


@pytest.fixture
def api(*, is_long: bool) -> Walk:
    hostile.a_row_of_everything()
    headers = {"Authorization": f"Bearer {hostile.token()}"}
    return Walk(Client(raise_request_exception=False, headers=headers), is_long=is_long)


def test_odd_ids_in_addresses_of_the_console(console: Walk) -> None:
    for place in hostile.places("/admin/")[console.half]:
        for value in console.some(hostile.IDS) if place.names else [""]:
            console.ask(place.with_ids(value))
        for value in console.some(hostile.FEW_IDS) if place.names else ():
            console.ask(place.with_ids(value), method="POST", body=DIALOG)
    assert not console.failures, "\n".join(console.failures)


def test_odd_parameters_of_the_console(console: Walk) -> None:
    pages = hostile.pages()
    for address in [place.route for place in hostile.places("/admin/") if not place.names][console.half]:
        names = hostile.filters(pages[address]) if address in pages else []
        for name in names:
            for value in console.some(hostile.VALUES):
                console.ask(f"{address}export.json", {name: value})
        for name in console.some((*names, *KNOWN), 2):
            console.ask(address, {"s": "x", name: "\x00²"})
        for value in console.some(("abc", "-1", hostile.NUMBER)):
            console.ask(address, {"s": "x", **dict.fromkeys(("p", "page", "o", "at", *names), value)})
    assert not console.failures, "\n".join(console.failures)


def test_odd_values_in_forms_of_the_console(console: Walk) -> None:
    pages = hostile.pages()
    shown_only = ("history/", "delete/", "live/", *(f"{address}" for address in pages))
    for place in hostile.places("/admin/")[console.half]:
        if place.route.endswith(shown_only) or "password_change" in place.route:
            continue
        page = next((pages[start] for start in pages if place.route.startswith(start)), None)
        row = hostile.detail(page) if place.names and page else ""
        if row is None or place.names not in {(), ("object_id",), ("id",)}:
            continue
        address = place.with_ids(row.partition("/")[0]) if row else place.route
        names = form_fields(console.client, address)
        for value in console.some(hostile.VALUES) if names else ():
            body = urlencode({"_form_submitted": "on", **dict.fromkeys(names, value)})
            console.ask(address, method="POST", body=body)
    assert not console.failures, "\n".join(console.failures)


def form_fields(client: Client, address: str) -> list[str]:
    """The names of the fields of a page's form, dialogs included."""
    answer = client.get(address)
    if answer.status_code != 200 or answer.streaming:
        return []
    return re.findall(r'<(?:input|select|textarea)[^>]* name="(\w+)"', answer.content.decode())


def test_crafted_cursors_of_the_console(console: Walk, administrator: User) -> None:
    for address, page in hostile.pages().items():
        if isinstance(page, KeysetPage):
            for cursor in console.some(hostile.console_cursors(page, administrator), 3):
                console.ask(address, {"at": cursor})
            for cursor in console.some(hostile.detail_cursors()) if hostile.detail(page) else ():
                console.ask(f"{address}{hostile.detail(page)}", {"at": cursor})
    for state in ("pending", "running", "succeeded&pipeline=reader"):
        for cursor in console.some(hostile.detail_cursors()):
            console.ask(f"/admin/engines/transactionrecord/?state={state}&at={cursor}")
    assert not console.failures, "\n".join(console.failures)


def test_odd_ids_of_the_api(api: Walk) -> None:
    for place in hostile.places("/api/"):
        for value in hostile.IDS if place.names else [""]:
            api.ask(place.with_ids(value))
        for value in hostile.FEW_IDS if place.names else [""]:
            for method in ("POST", "PUT", "DELETE"):
                api.ask(place.with_ids(value), method=method, body='{"reason": "\\u0000"}')
    assert not api.failures, "\n".join(api.failures)


def test_odd_parameters_and_crafted_cursors_of_the_api(api: Walk) -> None:
    for address, names in hostile.api_lists().items():
        for name in names:
            for value in hostile.api_cursors() if name == "cursor" else hostile.VALUES:
                api.ask(address, {name: value})
    assert not api.failures, "\n".join(api.failures)


@pytest.mark.django_db(transaction=True)
def test_odd_requests_to_a_real_server(site: Site, administrator: User) -> None:
    person = Client()
    person.force_login(administrator)
    headers = {"Authorization": f"Bearer {hostile.token()}", "Cookie": f"sessionid={person.cookies['sessionid'].value}"}
    with httpx.Client(base_url=site.url, headers=headers, timeout=LIMIT) as calls:
        for address in (
            "/admin/access/apiclient/abc/change/",
            "/admin/access/apiclient/%00/rotate/",
            "/admin/engines/worker/?age=zz",
            "/admin/engines/worker/?state=%00",
            "/admin/engines/pipeline/export.csv?task__startswith=a",
            "/admin/engines/deadletter/%ff/change/",
            "/api/v1/transactions?cursor=cD1hYmM%3D",
            "/api/v1/transactions/%00",
            "/api/v1/pipelines/%ff%00",
        ):
            answer = calls.get(address)
            assert answer.status_code in {302, 400, 404}, address
            assert "login" not in answer.headers.get("Location", ""), address
