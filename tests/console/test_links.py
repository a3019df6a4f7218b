"""Every link of every page leads to a page, and errors are pages of the console."""

import re
from collections import deque
from collections.abc import Callable
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test import Client

from engines.admin.pipelines import PipelinesPage
from engines.models import Pipeline
from ergon_site.access.models import AuditEntry
from tests.console import scene
from tests.console.records import read
from tests.factories import AuditEntryFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]

# What a page leads to by a click: links, fragments and dialogs. Signing out is a form.
LINK = re.compile(r'(?:href|data-live|hx-get)="([^"#][^"]*)"')
# What changes the look of a list and not what is in it.
SORTED = re.compile(r"[?&](o|p)=")


def links(page: str, address: str) -> set[str]:
    found = {urljoin(address, unescape(link)) for link in LINK.findall(page)}
    return {link.split("#")[0] for link in found if link.startswith(("/admin/", "/api/")) and not SORTED.search(link)}


def kind(link: str) -> tuple[str, tuple[str, ...]]:
    """A list has as many addresses as there are values of its filters: one for each set of filters is enough."""
    parts = urlsplit(link)
    return parts.path, tuple(sorted(parse_qs(parts.query)))


def test_every_link_of_every_page_leads_to_a_page(browse: Client) -> None:
    scene.fill()
    waiting, broken, seen = deque([("/admin/", "")]), [], {kind("/admin/")}
    while waiting:
        address, origin = waiting.popleft()
        answer = browse.get(address)
        if answer.status_code >= 400:
            broken.append(f"{answer.status_code} {address} on {origin}")
        is_page = answer.headers.get("Content-Type", "").startswith("text/html") and not answer.streaming
        if not is_page or not urlsplit(address).path.startswith("/admin/"):
            continue
        for link in sorted(links(answer.content.decode(), address)):
            # Filters upon filters of the same list say nothing new.
            if kind(link) not in seen and not (len(kind(link)[1]) > 1 and kind(link)[0] == kind(address)[0]):
                seen.add(kind(link))
                waiting.append((link, address))
    assert broken == []


def test_errors_are_pages_of_the_console_with_its_menu(browse: Client, hire: Callable[[str], User]) -> None:
    pages = {"/admin/nowhere/": 404, "/admin/engines/pipeline/77/change/": 404, "/admin/facts/fact/1-1/change/": 404}
    for address, status in pages.items():
        answer = browse.get(address)
        assert (answer.status_code, "Not found" in answer.content.decode()) == (status, True)
        assert 'href="/admin/engines/transactionrecord/"' in answer.content.decode()
    browse.force_login(hire("viewer"))
    refused = browse.get("/admin/access/apiclient/")
    assert (refused.status_code, "Your roles do not allow this" in refused.content.decode()) == (403, True)
    assert 'href="/admin/engines/transactionrecord/"' in refused.content.decode()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(KeyError, 500, "Something went wrong"), (OperationalError, 503, "The database is busy or does not answer.")],
)
def test_an_unexpected_error_is_a_page_that_asks_the_database_for_nothing(
    browse: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
    status: int,
    said: str,
) -> None:
    statements: list[str] = []

    def break_down(*_: object) -> None:
        connection.execute_wrappers.append(lambda _, sql, *__: statements.append(sql))
        msg = "password=hunter2"
        raise error(msg)

    # A database that fails in the middle of a page cannot be had on demand.
    monkeypatch.setattr(PipelinesPage, "decorate", break_down)
    browse.raise_request_exception = False
    try:
        answer = browse.get("/admin/engines/pipeline/")
    finally:
        connection.execute_wrappers.clear()
    page = answer.content.decode()
    assert (answer.status_code, statements) == (status, [])
    assert 'href="/admin/engines/transactionrecord/"' in page
    assert said in page
    assert "hunter2" not in page
    assert any(record.exc_info and "hunter2" in str(record.exc_info[1]) for record in caplog.records)


def test_the_audit_log_leads_to_what_it_names_and_tells_each_changed_field(
    browse: Client, hire: Callable[[str], User]
) -> None:
    scene.fill()
    hire("auditor")
    shown = read(browse, "/admin/access/auditentry/")
    led = dict(
        re.findall(
            r'data-label="Target"><a class="ergon-link" href="/admin/\w+/(\w+)/\d+/change/"><span[^>]*>(\S+)', shown
        )
    )
    assert set(led) >= {
        *("pipeline", "policy", "schedule", "bulkoperation", "zone", "boundary", "consumer", "apiclient", "gate"),
        "providerpolicyrow",
    }
    entry = AuditEntry.objects.get(action="pipeline.pause")
    page = read(browse, f"/admin/access/auditentry/{entry.pk}/change/")
    assert re.search(r"<code>paused</code>.*<del>false</del>.*<ins>true</ins>", page, re.DOTALL)
    assert f'href="/admin/engines/pipeline/{Pipeline.objects.get(name="archive").pk}/change/"' in page
    browse.force_login(User.objects.get(username="auditor"))
    made = AuditEntry.objects.get(action="api_client.create")
    page = read(browse, f"/admin/access/auditentry/{made.pk}/change/")
    assert "/admin/access/apiclient/" not in page, "an auditor may not see clients"
    written = AuditEntry.objects.get(action="policy.write", target="policy patient", after__version=2)
    page = read(browse, f"/admin/access/auditentry/{written.pk}/change/")
    assert re.search(r"<code>loop.batch.size</code>.*<ins>9</ins>", page, re.DOTALL)
    gone = AuditEntryFactory.create(target="pipeline that was", after={"changes": [{"changed": {"fields": ["email"]}}]})
    assert "pipeline that was" in read(browse, f"/admin/access/auditentry/{gone.pk}/change/")
