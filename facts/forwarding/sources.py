"""The sources of a boundary's facts: the store buffer in this database, or a peer over HTTP."""

import os
import time
from collections.abc import Container, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from ergon_site.access.core import tokens
from facts.client import BoundaryClient, Download, Fetched
from facts.conf import settings
from facts.core import peers
from facts.core.errors import AlarmError, FactError, ProvisioningError, UnreachableError
from facts.ledger import skipping
from facts.ledger.entries import Entry, prepare
from facts.ledger.receiving import Arrival
from facts.models import Boundary, Fact

# How often a peer is asked how far it is, if nothing comes anyway.
HEAD_EVERY = 1.0
MOST_OF_A_TOKEN_FILE = 4096
# Beyond this no database keeps an offset.
MOST = 2**63 - 1


class Batch(NamedTuple):
    """The next facts, up to the first that cannot be true; and the offset that the source takes for confirmed."""

    arrivals: list[Arrival]
    cursor: int
    trouble: AlarmError | None = None
    # The source has sent these as well; an administrator decided not to receive them.
    skipped: tuple[int, ...] = ()

    @property
    def offsets(self) -> list[int]:
        return [*(arrival.offset for arrival in self.arrivals), *self.skipped]


class Source(Protocol):
    def fetch(self, boundary: Boundary, limit: int, wait: float) -> Batch: ...

    def confirm(self, offset: int) -> None: ...

    def head(self) -> int | None:
        """The newest offset, where the boundary's own row does not tell."""

    def close(self) -> None: ...


def source_of(boundary: Boundary) -> Source:
    return PeerSource(boundary) if boundary.is_remote else StoreBuffer()


class StoreBuffer:
    """The frontier is its cursor, so there is nothing to confirm."""

    def fetch(self, boundary: Boundary, limit: int, wait: float) -> Batch:
        rows = Fact.objects.filter(boundary=boundary, offset__gt=boundary.frontier).order_by("offset")[:limit]
        zones = boundary.zones
        return Batch([Arrival(row.offset, Entry.from_row(row, *zones)) for row in rows], boundary.frontier)

    def confirm(self, offset: int) -> None: ...

    def head(self) -> None: ...

    def close(self) -> None: ...


class PeerSource:
    """Reads as a consumer of the peer. What it sends is checked as if a producer had sent it."""

    def __init__(self, boundary: Boundary) -> None:
        self._zones = boundary.zones
        # Checked at each use: the row may be older than the list of peers.
        peers.check_address(boundary.source_url, settings().peers)
        self._client = BoundaryClient(boundary.source_url, peer_token(boundary.source_token))
        self._consumer = boundary.source_consumer
        self._head: int | None = None
        self._head_due_at = 0.0

    def fetch(self, boundary: Boundary, limit: int, wait: float) -> Batch:
        page = self._client.fetch(limit, wait, consumer=self._name())
        if type(page.cursor) is not int or not -1 <= page.cursor < MOST:
            return Batch([], -1, AlarmError(f"the peer's cursor is {page.cursor!r}"))
        return self._checked(page.facts, page.cursor, skipping.offsets_after(boundary, page.cursor))

    def confirm(self, offset: int) -> None:
        cursor = self._client.confirm(offset, consumer=self._name())
        if cursor < offset:  # it would send the same facts for ever
            msg = f"offset {offset:,} was confirmed to the peer, but its cursor stays at {cursor:,}"
            raise UnreachableError(msg)

    def head(self) -> int | None:
        if time.monotonic() >= self._head_due_at:
            self._head = self._client.reader(self._name()).newest
            self._head_due_at = time.monotonic() + HEAD_EVERY
        return self._head

    def open_artifact(self, bucket: str, key: str) -> AbstractContextManager[Download]:
        return self._client.open_object(bucket, key)

    def close(self) -> None:
        self._client.close()

    def _checked(self, facts: Iterable[Fetched], cursor: int, skipped: Container[int] = ()) -> Batch:
        arrivals: list[Arrival] = []
        passed: list[int] = []
        for fact in facts:
            try:
                if type(fact.offset) is not int or not 0 <= fact.offset < MOST:
                    msg = f"the peer sends a fact with the offset {fact.offset!r}"
                    raise AlarmError(msg)  # noqa: TRY301
                if fact.offset in skipped:
                    passed.append(fact.offset)
                else:
                    arrivals.append(self._arrival(fact))
            except AlarmError as trouble:
                return Batch(arrivals, cursor, trouble, tuple(passed))
        return Batch(arrivals, cursor, skipped=tuple(passed))

    def _arrival(self, fact: Fetched) -> Arrival:
        try:
            entry = prepare({"envelope": fact.envelope, "fact": fact.fact}, is_stored=True)
        except FactError as error:
            msg = f"the peer sent an invalid fact at offset {fact.offset:,}: {error}"
            raise AlarmError(msg, offset=fact.offset) from error
        if entry.zones != self._zones:
            msg = f"the peer sends a fact from {entry.from_zone!r} to {entry.to_zone!r} at offset {fact.offset:,}"
            raise AlarmError(msg, offset=fact.offset)
        return Arrival(fact.offset, entry)

    def _name(self) -> str:
        """The consumer to read as: the one that was given, or the only one of ours that reads this boundary."""
        if not self._consumer:
            readers = [self._client.reader(name) for name in self._client.consumers()]
            names = [one.name for one in readers if (one.from_zone, one.to_zone) == self._zones]
            if len(names) != 1:
                told = ", ".join(sorted(names)) or "none"
                msg = f"the peer's token must be for one consumer of {' → '.join(self._zones)}; it is for: {told}"
                raise ProvisioningError(msg)
            self._consumer = names[0]
        return self._consumer


def peer_token(name: str) -> str:
    """The token of that name. What its file holds is sent only if it has the form of a token, and is never repeated."""
    peers.check_token_name(name)
    try:
        # Without waiting for a writer, where somebody has put a pipe.
        with open(
            settings().peer_tokens / name, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)
        ) as file:
            content = file.read(MOST_OF_A_TOKEN_FILE)
    except OSError as error:
        msg = f"the token {name} cannot be read from ERGON_PEER_TOKENS: {error.strerror}"
        raise ProvisioningError(msg) from None
    token = tokens.parse(content.decode("latin-1").strip())
    if token is None:
        msg = f"the file {name} in ERGON_PEER_TOKENS does not hold an API token and nothing else"
        raise ProvisioningError(msg)
    return token.text
