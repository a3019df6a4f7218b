"""Under ASGI: downloads and exports are sent while they are made, and no connection outlives its request."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.core.handlers.asgi import ASGIHandler
from django.db import connection
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.console.pages import LINES_AT_ONCE, ConsolePage
from facts import artifacts
from tests.factories import AuditEntryFactory
from tests.facts.upload_bytes import BUCKET
from tests.processes import LIMIT, database_url, eventually, free_port, process, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def get(path: str, on_part: Callable[[], None], **headers: str) -> bytes:
    """The body of an answer; `on_part` is called as each part of it is sent."""
    asked: list[dict[str, Any]] = [{"type": "http.request"}]
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return asked.pop() if asked else await asyncio.Future()

    async def send(message: Mapping[str, Any]) -> None:
        if message.get("body"):
            sent.append(message["body"])
            on_part()

    named = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": named}
    asyncio.run(asyncio.wait_for(ASGIHandler()(scope, receive, send), LIMIT))
    return b"".join(sent)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read of artifacts and rows so far."""
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)  # as ergon_site.asgi does
    so_far: list[Any] = []

    def noted(read: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def note(*args: Any) -> Iterator[Any]:
            for one in read(*args):
                so_far.append(one)
                yield one

        return note

    monkeypatch.setattr(artifacts, "open_slice", noted(artifacts.open_slice))
    monkeypatch.setattr(ConsolePage, "exported", noted(ConsolePage.exported))
    return so_far


def test_an_artifact_is_sent_while_it_is_read(read: list[Any]) -> None:
    body = b"apples, " * 2**17
    artifacts.put(BUCKET, "list.txt", BytesIO(body), by="tests")
    token = clients.create("erp", Grant(scopes=["objects:get"], buckets=[BUCKET]), by="tests").token.text
    at_each: list[int] = []
    path = f"/api/v1/objects/{BUCKET}/list.txt"
    assert get(path, lambda: at_each.append(len(read)), authorization=f"Bearer {token}") == body
    assert at_each[0] == 1 < at_each[-1]


def test_an_export_is_sent_while_its_rows_are_read(browse: Client, read: list[Any]) -> None:
    AuditEntryFactory.create_batch(3 * LINES_AT_ONCE)
    at_each: list[int] = []
    session = f"sessionid={browse.cookies['sessionid'].value}"
    body = get("/admin/access/auditentry/export.csv", lambda: at_each.append(len(read)), cookie=session)
    assert body.count(b"\n") == 3 * LINES_AT_ONCE + 1
    assert at_each[0] <= LINES_AT_ONCE < at_each[-1]


@pytest.mark.postgresql
def test_requests_leave_no_database_connections_behind(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "web.log"
    listen = ["--interface", "asgi", "--host", "127.0.0.1", "--port", str(port), "--no-ws"]
    with (
        psycopg.connect(database_url(), autocommit=True) as watcher,
        process("granian", *listen, "ergon_site.asgi:application", log=log),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LIMIT) as caller,
    ):

        def connections() -> int:
            row = watcher.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone()
            return int(row[0]) if row else 0

        before = connections()
        wait_for(f"{caller.base_url}/livez")
        assert {caller.get("/readyz").status_code for _ in range(20)} == {200}
        assert caller.get("/admin/login/").status_code == 200
        eventually(lambda: connections() <= before, "the connections are closed", within=LIMIT)
