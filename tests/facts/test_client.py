"""The client against a real server: threads and asyncio alike, and without Django."""

import asyncio
import gzip
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ergon_site.access import clients, deadlines
from ergon_site.access.clients import Grant
from facts import provisioning
from facts.client import AsyncBoundaryClient, BoundaryClient
from facts.core.errors import (
    ConflictingDuplicateError,
    FactError,
    NotAuthorizedError,
    ObjectConflictError,
    ProvisioningError,
    UnauthenticatedError,
    UnknownFactError,
    UnreachableError,
)
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.peers import Garbled, Script, peer
from tests.processes import LIMIT, ROOT, Site, free_port

pytestmark = pytest.mark.once

WITHOUT_DJANGO = """
import sys
sys.modules["django"] = None
from facts.client import AsyncBoundaryClient, BoundaryClient
from facts.message_ids import hash_id
BoundaryClient("http://localhost", "token").close()
assert not [name for name in sys.modules if name.startswith("django.")]
"""


@pytest.fixture
def token(site: Site) -> str:
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    grant = Grant(zones=[PLANT], target_zones=[OFFICE], consumers=["erp"], buckets=["files"])
    return clients.create("mes", grant, by="tests").token.text


def test_it_needs_no_django() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DJANGO], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_producer_appends_repeats_and_looks_up(site: Site, token: str) -> None:
    with BoundaryClient(site.url, token) as client:
        assert client.append(draft(1)) == (0, "order-1-released", False)
        assert client.append(draft(1)).is_duplicate
        assert client.look_up("order-1-released", PLANT, OFFICE).fact["subject"] == "work_order:WO-1"
        results = client.append_many([draft(2), draft(1, object_json=5), draft(3)])
        told = [one.code if isinstance(one, FactError) else one.offset for one in results]
        assert told == [1, "conflicting_duplicate", 2]
        with pytest.raises(ConflictingDuplicateError, match="not use a new one"):
            client.append(draft(1, produced_at_unix_ms=5))
        with pytest.raises(NotAuthorizedError) as refused:
            client.append(draft(1, from_zone=OFFICE, to_zone=PLANT))
        assert refused.value.pointer == "/envelope/from_zone"
        with pytest.raises(UnknownFactError):
            client.look_up("a/b c", PLANT, OFFICE)


def test_a_consumer_fetches_confirms_and_reads_on(site: Site, token: str) -> None:
    with BoundaryClient(f"{site.url}/api/v1/", token) as client:
        client.append_many(draft(number) for number in range(5))
        assert client.consumers() == ["erp"]
        page = client.fetch(2)
        assert ([fact.offset for fact in page.facts], page.cursor) == ([0, 1], -1)
        assert client.confirm(1) == 1
        seen: list[int] = []
        assert client.consume(lambda fact: seen.append(fact.offset), limit=2, until_empty=True) == 3
        assert seen == [2, 3, 4]
        assert client.reader() == ("erp", PLANT, OFFICE, 4, 4)


def test_a_consumer_in_a_thread_gets_what_is_appended_later_and_stops_when_asked(site: Site, token: str) -> None:
    with BoundaryClient(site.url, token) as producer, BoundaryClient(site.url, token, consumer="erp") as reader:
        seen: list[str] = []

        def handle(fact: Any) -> None:
            seen.append(fact.envelope["message_id"])
            if len(seen) == 2:
                reader.stop()

        reading = threading.Thread(target=reader.consume, args=[handle], kwargs={"wait": 2.0})
        reading.start()
        producer.append_many([draft(1), draft(2), draft(3)])
        reading.join(LIMIT)
        assert not reading.is_alive()
        assert producer.reader("erp").cursor == len(seen) - 1 == 1


def test_asyncio_does_the_same_by_the_same_rules(site: Site, token: str) -> None:
    async def speak() -> None:
        async with AsyncBoundaryClient(site.url, token) as client:
            assert (await client.append(draft(1))).offset == 0
            assert (await client.append(draft(1))).is_duplicate
            with pytest.raises(ConflictingDuplicateError):
                await client.append(draft(1, object_json=5))
            for first in (2, 8, 14):
                await asyncio.gather(*(client.append(draft(number)) for number in range(first, first + 6)))
            seen: list[int] = []

            async def handle(fact: Any) -> None:
                await asyncio.sleep(0)
                seen.append(fact.offset)
                if fact.offset == 18:
                    client.stop()

            assert await client.consume(handle) == 19
            assert seen == list(range(19))
            assert (await client.fetch()).facts == []

    asyncio.run(speak())


@pytest.mark.usefixtures("_empty_storage")
def test_an_artifact_goes_before_its_fact(site: Site, token: str, tmp_path: Path) -> None:
    (tmp_path / "order.pdf").write_bytes(b"%PDF" * 500_000)
    with BoundaryClient(site.url, token) as client, (tmp_path / "order.pdf").open("rb") as file:
        about = draft(1, object_json={"file_name": "order.pdf"})
        told = client.append_with_artifact(about, "files", "2026/order 1.pdf", file, media_type="application/pdf")
        assert told.offset == 0
        kept = client.fetch().facts[0].fact["object_json"]
        assert (kept["size"], kept["media_type"], kept["file_name"]) == (2_000_000, "application/pdf", "order.pdf")
        with pytest.raises(ObjectConflictError):
            client.put_object("files", "2026/order 1.pdf", b"other bytes")

    async def speak() -> None:
        async with AsyncBoundaryClient(site.url, token) as client:
            with (tmp_path / "order.pdf").open("rb") as file:
                assert (await client.put_object("files", "2026/order 1.pdf", file)).digest == kept["digest"]
            assert (await client.append_with_artifact(draft(2), "files", "note", b"text")).offset == 1

    asyncio.run(speak())


def test_a_wrong_token_and_a_boundary_that_is_away_are_told_apart(site: Site, token: str) -> None:
    with BoundaryClient(site.url, "nonsense") as client, pytest.raises(UnauthenticatedError):
        client.append(draft(1))
    with BoundaryClient(f"http://127.0.0.1:{free_port()}", token) as client, pytest.raises(UnreachableError):
        client.append(draft(1))


def test_an_answer_that_cannot_be_decoded_is_asked_for_again_and_then_told() -> None:
    script = Script()

    async def fetch(url: str) -> None:
        async with AsyncBoundaryClient(url, "token", consumer="office") as client:
            await client.fetch()

    with peer(script) as url:
        script.pages = [Garbled(b"no gzip"), Garbled(b"no gzip")]
        with BoundaryClient(url, "token", consumer="office") as client:
            assert client.fetch().facts == []
        script.pages = [Garbled(b"no gzip")] * 8
        with (
            BoundaryClient(url, "token", consumer="office") as client,
            pytest.raises(UnreachableError, match="does not answer"),
        ):
            client.fetch()
        with pytest.raises(UnreachableError, match="does not answer"):
            asyncio.run(fetch(url))
        assert script.pages == []


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_an_answer_that_unpacks_to_more_than_a_boundary_sends_is_not_taken(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facts.client.LONGEST_ANSWER", 10_000)
    script = Script()

    async def fetch(url: str) -> None:
        async with AsyncBoundaryClient(url, "token", consumer="office") as client:
            await client.fetch()

    with peer(script) as url, BoundaryClient(url, "token", consumer="office") as client:
        script.pages = [Garbled(gzip.compress(b'{"facts": [], "cursor": -1}' + b" " * 20_000))] * 8
        with pytest.raises(UnreachableError, match="the answer is longer than 10,000 bytes"):
            client.fetch() if kind == "threads" else asyncio.run(fetch(url))


@pytest.mark.parametrize("kind", [BoundaryClient, AsyncBoundaryClient])
def test_an_address_or_a_token_that_cannot_be_one_is_refused(kind: Callable[[str, str], Any]) -> None:
    with pytest.raises(ProvisioningError, match="Invalid port"):
        kind("http://plant.example:abc", "token")
    with pytest.raises(ProvisioningError, match="characters that no token has"):
        kind("http://plant.example", "tökén")


def test_what_has_no_address_is_refused_and_not_asked_again(site: Site, token: str) -> None:
    with BoundaryClient(site.url, token) as client, pytest.raises(ProvisioningError, match="URL too long"):
        client.look_up("x" * 100_000, PLANT, OFFICE)


def test_a_cancelled_reader_leaves_nothing_behind(site: Site, token: str) -> None:
    async def cancel(begin: Callable[[], Awaitable[Any]]) -> None:
        reading = asyncio.ensure_future(begin())
        await asyncio.sleep(0.5)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    async def speak() -> None:
        async with AsyncBoundaryClient(site.url, token) as client:
            await client.append(draft(1))
            await cancel(lambda: client.consume(lambda _: asyncio.sleep(60)))
            assert (await client.reader()).cursor == -1

    asyncio.run(speak())


class Endless:
    """A body of blanks that never ends."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield b" "


class Slow(Script):
    """Answers who asks for consumers without end, and everything else at once."""

    def answer(self, path: str) -> Any:
        return Endless() if path == "/api/v1/client" else super().answer(path)


def test_calls_inside_a_deadline_end_with_it_and_an_inner_one_may_lift_it() -> None:
    with peer(Slow()) as url, BoundaryClient(url, "token") as client:
        with deadlines.within(0.3):
            with pytest.raises(UnreachableError, match="the time limit of the whole request has passed"):
                client.consumers()
            with pytest.raises(UnreachableError, match="the time limit of the whole request has passed"):
                client.reader("office")
            with deadlines.within(None):
                assert client.reader("office").newest == 9
        assert client.reader("office").newest == 9
