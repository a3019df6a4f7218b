"""VERBS of those who read: look up, fetch, confirm. Facts leave as the canonical text that they came in."""

import time
from datetime import datetime
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, IntegerField, QuerySet
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler

from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts import telemetry
from facts.core.errors import (
    HistoryTruncatedError,
    OffsetOutOfRangeError,
    UnknownConsumerError,
    UnknownFactError,
    refuse,
)
from facts.core.texts import has_controls
from facts.ledger import boundaries, remembering
from facts.models import Boundary, Consumer, Fact, ForwardedFact

MOST = 1000
MOST_BYTES = 32 * 1024 * 1024
LONGEST_WAIT = 30.0
# How often somebody who waits for facts looks for them.
LOOK = 0.05


class Octets(Func):
    """The bytes of a text; `Length` counts characters."""

    function = "OCTET_LENGTH"
    output_field = IntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="LENGTH(CAST(%(expressions)s AS BLOB))", **more)


class Found(NamedTuple):
    """A fact and its place."""

    offset: int
    content: str


class Identity(NamedTuple):
    """Tells a fact from another that has got its offset since, after a failover in which the first was lost."""

    message_id: str
    written_at: datetime


class Page(NamedTuple):
    """The facts after a cursor."""

    facts: list[Found]
    cursor: int


def look_up(message_id: str, from_zone: str, to_zone: str) -> Found:
    """Whether a message has been appended, for a producer that does not remember."""
    boundary = boundaries.find(from_zone, to_zone)
    # No id has control characters, and a database may choke on one.
    for buffer in () if has_controls(message_id) else (Fact, ForwardedFact):
        row = buffer.objects.filter(boundary=boundary, message_id=message_id).values_list("offset", "content").first()
        if row is not None:
            return Found(*row)
    # Whoever asks wants to know whether to append it once more.
    if (place := remembering.known(boundary, [message_id]).get(message_id)) is not None:
        msg = f"the fact {message_id!r} was appended at offset {place[0]:,} and has been truncated since"
        raise HistoryTruncatedError(msg)
    msg = f"no fact with the message id {message_id!r} was appended from {from_zone!r} to {to_zone!r}"
    raise UnknownFactError(msg)


def fetch(name: str, *, limit: int = 100, wait: float = 0.0) -> Page:
    """The next facts of a consumer, in the order of their offsets. If there are none, wait a while for some."""
    telemetry.fetches.add(1)
    until = time.monotonic() + min(wait, LONGEST_WAIT)
    if not has_controls(name):
        Consumer.objects.filter(name=name).update(fetched_at=Now())
    while True:
        consumer = find_consumer(name)
        facts = after(consumer.boundary, consumer.cursor, limit)
        left = until - time.monotonic()
        if facts or left <= 0:
            return Page(facts, consumer.cursor)
        time.sleep(min(LOOK, left))


@retry_conflicts
@short_transaction()
def confirm(name: str, offset: Any) -> int:
    """Move the cursor forward, never back; where it stands."""
    telemetry.confirms.add(1)
    if type(offset) is not int or offset < 0:
        refuse("/offset", "must be a whole number from 0")
    consumer = find_consumer(name)
    if offset == consumer.cursor:
        return offset  # even if it has been removed since
    boundary = consumer.boundary
    if offset < _removed_below(boundary):
        msg = f"facts before offset {boundary.first_offset:,} have been removed"
        raise HistoryTruncatedError(msg, "/offset")
    if offset > newest(boundary):
        msg = f"there is no offset {offset:,} yet; the newest is {newest(boundary):,}"
        raise OffsetOutOfRangeError(msg, "/offset")
    # In one statement, so that a late confirmation never takes back an earlier one.
    Consumer.objects.filter(pk=consumer.pk, cursor__lt=offset).update(cursor=offset, confirmed_at=Now())
    return Consumer.objects.values_list("cursor", flat=True).get(pk=consumer.pk)


def after(boundary: Boundary, cursor: int, limit: int) -> list[Found]:
    """The facts after an offset: of the forward buffer if they come from a peer, else of the store buffer."""
    if cursor + 1 < _removed_below(boundary):
        msg = f"facts before offset {boundary.first_offset:,} have been removed; the cursor is at {cursor:,}"
        raise HistoryTruncatedError(msg)
    rows: QuerySet[Any] = readable(boundary).filter(offset__gt=cursor).order_by("offset")
    fitting = _fitting(rows, min(limit, MOST))
    return [Found(*row) for row in rows.values_list("offset", "content")[:fitting]]


def _fitting(rows: QuerySet[Any], limit: int) -> int:
    """As many as fit into an answer, and at least one; they are not loaded for this."""
    fitting = size = 0
    for taken in rows.values_list(Octets("content"), flat=True)[:limit]:
        size += taken
        if size > MOST_BYTES and fitting:
            break
        fitting += 1
    return fitting


def _removed_below(boundary: Boundary) -> int:
    """Facts before this offset have been removed. A buffer of a peer's facts may have begun later than at 0."""
    return 0 if boundary.is_remote and boundary.removed_offset is None else boundary.first_offset


def identity(boundary: Boundary, offset: int) -> Identity | None:
    """Of the fact at an offset; None if there is none."""
    row = readable(boundary).filter(offset=offset).values_list("message_id", "written_at").first()
    return row and Identity(*row)


def readable(boundary: Boundary) -> QuerySet[Fact] | QuerySet[ForwardedFact]:
    if boundary.is_remote:
        return ForwardedFact.objects.filter(boundary=boundary, offset__lte=boundary.frontier)
    return Fact.objects.filter(boundary=boundary)


def newest(boundary: Boundary) -> int:
    """The offset of the newest fact that can be read; -1 if there is none."""
    return boundary.frontier if boundary.is_remote else boundary.next_offset - 1


def position(consumer: Consumer) -> dict[str, Any]:
    """The boundary that a consumer reads, how far it is, and how far it could be."""
    from_zone, to_zone = consumer.boundary.zones
    place = {"cursor": consumer.cursor, "newest": newest(consumer.boundary)}
    return {"name": consumer.name, "from_zone": from_zone, "to_zone": to_zone, **place}


def find_consumer(name: str) -> Consumer:
    # No name has control characters, either.
    named = Consumer.objects.select_related("boundary").filter(name=name)
    consumer = None if has_controls(name) else named.first()
    if consumer is None:
        msg = f"there is no consumer named {name!r}; create it first, a fetch does not"
        raise UnknownConsumerError(msg)
    if consumer.is_retired:
        msg = f"the consumer {name!r} was retired"
        raise UnknownConsumerError(msg)
    return consumer
