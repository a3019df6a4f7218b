"""All addresses of the API and of the console, and what nobody should send to them."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from django.contrib.auth.models import User
from django.test import RequestFactory
from django.urls import URLPattern, get_resolver
from django.urls.converters import get_converters
from drf_spectacular.generators import SchemaGenerator

from engines import schedules
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.console.lists import KeysetPage
from ergon_site.access.core.scopes import SCOPES
from ergon_site.console import console
from facts import ledger, provisioning
from providers import calls, policies
from tests.console import records
from tests.console.test_facts_pages import hand_over, store
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.providers.scripted_providers import WHO, scripted

NUMBER = "9" * 30
IDS = ["abc", "-1", NUMBER, "1\x00", "²", "1-1", "a/b", "' OR 1=1", "x" * 300, "\ud800"]
# Sent to verbs, which do more than to look for it.
FEW_IDS = ["abc", NUMBER, "1\x00"]
# What each parameter of an address is asked with.
VALUES = ["\x00", NUMBER, "-1", "²", "abc", "1e400", "x" * 5000, "0001-01-01T00:00:00+14:00"]
KEYS: list[Any] = [
    *("abc", "\x00", "\ud800", "²", 10**30, -(10**30), 1e400, float("nan"), True, None, {}, [1], "x" * 3000),
    *("2024-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2024-02-30T00:00:00Z"),
]


class Place(NamedTuple):
    """An address with names in the place of ids."""

    route: str
    names: tuple[str, ...]

    def with_ids(self, value: object) -> str:
        address = self.route
        for name in self.names:
            address = address.replace(f"<{name}>", quote(str(value), safe="", errors="surrogatepass"))
        return address


def places(start: str) -> list[Place]:
    found = [Place(f"/{route}", names) for route, names in _walk(get_resolver().url_patterns, "")]
    return [place for place in found if place.route.startswith(start) and "logout" not in place.route]


def _walk(patterns: Any, before: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    kinds: Mapping[type, str] = {type(converter): name for name, converter in get_converters().items()}
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if not isinstance(pattern, URLPattern):
            yield from _walk(pattern.url_patterns, route)
        elif "(?P" not in route:
            for name, converter in pattern.pattern.converters.items():
                route = route.replace(f"<{kinds[type(converter)]}:{name}>", f"<{name}>")
            yield route, tuple(pattern.pattern.converters)


def pages() -> dict[str, Any]:
    """The lists of the console, by their addresses."""
    found = console()._registry.items()
    return {f"/admin/{model._meta.app_label}/{model._meta.model_name}/": page for model, page in found}


def filters(page: Any) -> list[str]:
    """What a list of the console is filtered by."""
    names: list[str] = []
    declared: list[Any] = page.get_list_filter(RequestFactory().get("/"))
    for one in declared:
        column = one[0] if isinstance(one, tuple) else one
        names += [f"{column}__exact", f"{column}__id__exact"] if isinstance(column, str) else [column.parameter_name]
    return names


def console_cursors(page: Any, administrator: User) -> Iterator[str]:
    """Cursors of a list that were never given out."""
    request = RequestFactory().get("/")
    request.user = administrator
    tag = sha256(repr([]).encode()).hexdigest()[:8]
    for key in KEYS:
        yield _encoded([tag, "n", *[key] * len(page.keyset_query(request, {}).order)])
    yield from ("%", "é", "x" * 9000, _encoded([]), _encoded({}), _encoded("x"), _encoded([tag, "n"]))


def detail_cursors() -> Iterator[str]:
    """Of the lists within the page of one row."""
    yield from (_encoded(["", "p", key]) for key in KEYS)


def _encoded(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def api_cursors() -> Iterator[str]:
    for key in KEYS:
        text = str(key).encode("utf-8", "surrogatepass")
        yield urlsafe_b64encode(urlencode({"p": text, "r": 1, "o": NUMBER}).encode()).decode()
    yield from ("%", "é", "\x00", "x" * 9000, urlsafe_b64encode(b"o=-1").decode(), urlsafe_b64encode(b"\xff").decode())


def api_lists() -> dict[str, list[str]]:
    """What is read from the API by addresses without odd ids, and the parameters that each of them knows."""
    names = {"name": "reader", "provider_name": "rank", "capability": "snapshot"}
    schema: Any = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    found = {}
    for route, methods in schema["paths"].items():
        if "get" in methods:
            address = route
            for one in methods["get"].get("parameters", []):
                if one["in"] == "path":
                    address = address.replace(f"{{{one['name']}}}", names.get(one["name"], "1"))
            found[address] = [one["name"] for one in methods["get"].get("parameters", []) if one["in"] == "query"]
    return found


def a_row_of_everything() -> None:
    pipeline = make_pipeline("reader")
    records.succeed(pipeline, {"n": 1})
    letter = records.fail(pipeline, {"n": 2})
    records.make_worker("reader")
    bulk.begin("discard", letter.group_id, Terms(), by="tests", reason="x")
    schedules.create("reader", schedules.Plan(pipeline="reader", cron="* * * * *"), by="tests")
    boundary = make_boundary()
    for number in range(2):
        ledger.append(draft(number))
    hand_over(boundary, 1)
    provisioning.create_consumer("reader", PLANT, OFFICE, by="tests")
    store()
    calls.set_quota(WHO, limit=10, window=60, by="tests")
    scripted({}).ask()
    policies.write("rank", "snapshot", body={}, by="tests", reason="x")


def token() -> str:
    """Of a client that may do everything."""
    grant = Grant(scopes=list(SCOPES), zones=[PLANT], target_zones=[OFFICE], consumers=["reader"], rate=1e9)
    return clients.create("hostile", grant, by="tests").token.text


def detail(page: Any) -> str | None:
    """The end of the address of a row's page, where there is a row."""
    row = page.model._default_manager.order_by().first()
    if row is None:
        return None
    return f"{page.key_of(row) if isinstance(page, KeysetPage) else row.pk}/change/"
