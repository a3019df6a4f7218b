"""Finding things in the console: the search of lists, and the palette over everything."""

from collections.abc import Callable, Collection
from html import escape, unescape
from re import findall, search

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engines import pipelines, transactions
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.console import pages
from ergon_site.access.console.search import LONGEST_SEARCH
from ergon_site.access.core.search_terms import Search, parse
from facts import ledger
from providers import calls
from providers.core.exchange import Who
from tests.console import records
from tests.console.test_long_lists import plan, seed
from tests.factories import make_pipeline
from tests.facts.drafts import draft, make_boundary

pytestmark = pytest.mark.django_db

ADDRESS = "/admin/engines/transactionrecord/"
# What is typed, and the ids of the rows.
SEARCHES = {
    "pipeline:invoices state:failed error:timeout payload.order.id:42 after:2h": {"late"},
    "state:failed pipeline:orders": {"urn:order:1"},
    "State:FAILED": {"late", "lost", "urn:order:1"},
    "payload.order.id:42 payload.order.to:Ada Lovelace": {"late"},
    'error:"no route"': {"lost"},
    "category:business error:timeout": set(),
    "before:1h": set(),
    "before:2999-01-01 after:2020-01-01T00:00+02:00 state:succeeded": {"well"},
    # An id or its start, or else words of errors.
    "urn:order:1": {"urn:order:1"},
    "la": {"late"},
    "route HOST": {"lost"},
    "state:succeeded timeout": set(),
    "pipeline:orders read timeout": {"urn:order:1"},
    # Nobody finds out letter by letter what a pipeline hides.
    "payload.amount:1": {"hidden"},
    "payload.amount:1 payload.iban:DE89": set(),
}
REFUSED = {
    "state:fialed": "There is no state 'fialed'; there are pending, running, succeeded, failed, cancelled.",
    "pipeline:invoice": "There is no pipeline 'invoice'; there are invoices, orders, payouts.",
    "category:x": "There is no category 'x'; there are BUSINESS, SYSTEM, TIMEOUT.",
    "after:soon": "A time looks like 30m, 2h, 7d",
    "age:old": "An age looks like under-1h or over-7d",
    "worker:me": "Worker is the number of a worker.",
    "payload.a.-1:2": "A path into a payload has at most 20 parts",
}
EXPLAINED = {
    "sate:failed": "There is no filter sate: here, so it was searched as text. Did you mean state:? Filters: state,",
    "state:": "state: needs a value.",
    "timeout": "no such id: searched the errors of the newest 50,000",
}
LISTS = {
    "engines/deadletter/?q=source:orders+error:timeout": 1,
    "engines/deadletter/?q=error:timeout": 2,
    "engines/deadletter/?q=la+state:open": 1,
    "engines/deadlettergroup/?q=timeout+read": 2,
    "engines/deadlettergroup/?q=error:route+state:open": 1,
    "engines/pipeline/?q=state:paused": 1,
    "engines/pipeline/?q=direction:inbound+inv": 1,
    "access/auditentry/?q=before:1h": 0,
}
KINDS = {
    "urn:or": ("Transactions", "urn:order:1"),
    "case-5": ("Transactions", "case-5-first"),
    "late": ("Dead letters", "late"),
    "invo": ("Pipelines", "invoices"),
    "route host": ("Dead-letter groups", "ConnectionError: no route to host"),
    "crawl/f": ("Capabilities", "crawl/fetch"),
    "message-9": ("Facts", "message-9"),
    "0": ("Facts", "message-9"),
    "core →": ("Boundaries", "core → edge"),
    "crm": ("API clients", "crm"),
    "ada": ("Users", "ada"),
    "trans": ("Pages", "Transactions"),
    "pause inv": ("Acts", "Pause invoices…"),
    "resume ord": ("Acts", "Resume orders…"),
    "RESET crawl": ("Acts", "Reset crawl/fetch…"),
    "replay timeout": ("Acts", "Replay all of ConnectionError: read timeout…"),
    "new api": ("Acts", "New API client"),
}
HOSTILE = ["\x00", "state:\x00", "%", "_", "\\", "a" * 501, "9" * 40, "<script>", "pause ", "  "]
HOSTILE += ["payload." + "a." * 240 + ":1", "error:%_\\'\""]

LARGE = r'FROM "(engines_transactionrecord|engines_deadletter|facts_fact|facts_forwardedfact)"'


def rows(page: str) -> set[str]:
    return set(findall(r'class="ergon-id">([^<]*)<', page))


def chips(client: Client, query: str) -> dict[str, str]:
    page = client.get(ADDRESS + query).text
    found = findall(r'class="ergon-chip" href="([^"]*)"[^>]*><span>([^<]*)</span>', page)
    return {unescape(label): unescape(address) for address, label in found}


def found(client: Client, text: str) -> dict[str, dict[str, str]]:
    """The palette's lines: sections, titles, addresses."""
    answer = client.get("/admin/search/", {"q": text}, headers={"Accept": "application/json"})
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    sections = answer.json()["sections"]
    return {one["title"]: {title: address for title, _, address in one["lines"]} for one in sections}


@pytest.fixture
def everything() -> None:
    """Something of each kind that can be found."""
    invoices, orders = make_pipeline("invoices"), make_pipeline("orders")
    records.fail(invoices, {"order": {"id": 42, "to": "Ada Lovelace"}}, records.failure("read timeout"), id="late")
    records.fail(invoices, {"order": {"id": 7}}, records.failure("no route to host"), id="lost")
    records.fail(orders, {"order": {"id": 42}}, records.failure("read timeout"), id="urn:order:1")
    records.succeed(orders, {"order": {"id": 42}}, id="well")
    transactions.submit(make_pipeline("payouts", redacted=["iban"]).name, {"iban": "DE89", "amount": 1}, id="hidden")
    transactions.submit("orders", {}, id="case-5-first", correlation_id="case-5")
    records.make_worker("orders")
    make_boundary("core", "edge")
    ledger.append(draft(from_zone="core", to_zone="edge", message_id="message-9"))
    calls.set_quota(Who("acme", "crawl", "fetch"), limit=5, window=60.0, by="tests", reason="test")
    clients.create("crm", Grant(scopes=["metrics:read"]), by="tests")
    pipelines.pause("orders", by="tests", reason="test")


@pytest.mark.usefixtures("everything")
def test_a_search_names_the_filters_of_the_list_and_is_answered_in_words(browse: Client) -> None:
    for text, ids in SEARCHES.items():
        assert rows(browse.get(ADDRESS, {"q": text}).text) == ids, text
    for text, said in {**REFUSED, **EXPLAINED}.items():
        assert said in unescape(browse.get(ADDRESS, {"q": text}).text), text
        exported = browse.get(f"{ADDRESS}export.csv", {"q": text})
        assert exported.status_code == (400 if text in REFUSED else 200), text
    for address, count in LISTS.items():
        assert browse.get(f"/admin/{address}").text.count("data-row") == count, address


@pytest.mark.usefixtures("everything")
def test_filters_are_chips_that_can_be_removed(browse: Client) -> None:
    assert chips(browse, "?pipeline=invoices&q=state:failed+error:timeout") == {
        "pipeline: invoices": "?q=state%3Afailed+error%3Atimeout",
        "state: failed": "?pipeline=invoices&q=error%3Atimeout",
        "error: timeout": "?pipeline=invoices&q=state%3Afailed",
    }
    # What is typed wins over what was chosen before, and then has the only chip.
    assert chips(browse, "?pipeline=invoices&q=pipeline:orders") == {"pipeline: orders": "?pipeline=invoices"}
    assert chips(browse, "?age=over-1h&q=x") == {"age: older than an hour": "?q=x", "text: x": "?age=over-1h"}


@pytest.mark.usefixtures("everything")
def test_the_palette_finds_and_leads_there(browse: Client) -> None:
    for text, (section, title) in KINDS.items():
        address = found(browse, text)[section][title]
        assert browse.get(address).status_code == 200, text
    # The same without script.
    page = browse.get("/admin/search/", {"q": text}).text
    assert f'href="{escape(address)}"' in page
    assert escape(title) in page


@pytest.mark.usefixtures("everything")
def test_the_palette_shows_what_a_person_may_see_and_do(client: Client, hire: Callable[[str], User]) -> None:
    client.force_login(hire("viewer"))
    assert {"API clients", "Users", "Audit entries"}.isdisjoint(found(client, "")["Pages"])
    assert found(client, "crm") == found(client, "new api") == found(client, "viewer") == {}
    assert found(client, "invoices").keys() == {"Pipelines", "Dead-letter groups"}
    assert "Acts" not in found(client, "pause invoices")
    client.force_login(hire("operator"))
    assert list(found(client, "pause invoices")["Acts"]) == ["Pause invoices…"]
    assert "Acts" not in found(client, "replay timeout")
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    assert found(client, "invoices") == found(client, "late") == found(client, "") == {}
    client.force_login(User.objects.create_user("stranger"))
    assert client.get("/admin/search/?q=invoices").status_code == 302


@pytest.mark.usefixtures("everything")
def test_hostile_texts_break_neither_lists_nor_palette(browse: Client) -> None:
    for text in HOSTILE:
        for place in ("engines/transactionrecord", "engines/pipeline"):
            assert browse.get(f"/admin/{place}/", {"q": text}).status_code in {200, 302}, text
        assert text not in "%_\\" or "Transactions" not in found(browse, text)
        page = browse.get("/admin/search/", {"q": text})
        assert page.status_code == 200
        assert 'value="<script>' not in page.text


@pytest.mark.usefixtures("everything")
def test_the_palette_asks_few_queries_that_indexes_serve(client: Client, hire: Callable[[str], User]) -> None:
    seed(20_000 if connection.vendor == "postgresql" else 2_000)
    client.force_login(hire("administrator"))
    for text in ("t-1", "c-7", "42", "message-9", "pause orders", ""):
        with CaptureQueriesContext(connection) as queries:
            found(client, text)
        assert len(queries) <= 12, [query["sql"] for query in queries]
        large = [one["sql"] for one in queries if search(LARGE, one["sql"])]
        assert [told for told in map(plan, large) if "Seq Scan" in told or "Sort" in told] == []


@pytest.mark.parametrize(
    "name", ["engines/pipeline", "engines/policy", "access/apiclient", "engines/transactionrecord"]
)
def test_a_search_that_is_too_long_is_refused_before_it_is_parsed(
    browse: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lengths: list[int] = []

    def noting(text: str, names: Collection[str]) -> Search:
        lengths.append(len(text))
        return parse(text, names)

    # Whether a text was parsed shows in nothing but the time that it takes.
    monkeypatch.setattr(pages, "parse", noting)
    address = f"/admin/{name}/"
    assert browse.get(address, {"q": "a " * 100}).status_code == 200
    for part in ("direction:a ", "payload.a ", "a "):
        answer = browse.get(address, {"q": part * 2000})
        assert (answer.status_code, answer.headers["Location"]) == (302, f"{address}?e=1")
        assert browse.get(f"{address}export.csv", {"q": part * 2000}).status_code == 400
    assert max(lengths) <= LONGEST_SEARCH
