"""How boundaries and consumers stand, in one statement for all of them and by the database's own clock."""

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db.models import BigIntegerField, Case, Exists, F, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce, Least, Now

from facts.core import watching
from facts.core.gates import Gate
from facts.core.watching import Flow, Retention, Worry
from facts.ledger.reading import newest
from facts.ledger.truncating import THE_FORWARD_BUFFER
from facts.models import Artifact, Boundary, Consumer, Fact, ForwardedFact

READER = ("id", "name", "cursor", "created_at", "created_by", "fetched_at", "confirmed_at")
ORDER = ("from_zone__name", "to_zone__name")
STILL = Flow(backlog=0, lag=0.0, silence=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryStanding:
    """A boundary, how far behind its forward buffer is, and how full its store buffer.

    Where facts are never handed over here but only read, as when a peer pulls them, the slowest reader is what counts.
    """

    boundary: Boundary
    is_read_only: bool
    newest: int
    flow: Flow
    rows: int
    row_percent: float | None
    byte_percent: float | None
    retention: Retention
    worries: tuple[Worry, ...]
    readers: "tuple[ConsumerStanding, ...]"
    # Of all boundaries: asked here because each page that lists them would have to ask for it otherwise.
    has_damaged_artifacts: bool

    @property
    def fill(self) -> float | None:
        return watching.fullest(self.row_percent, self.byte_percent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStanding:
    consumer: Consumer
    newest: int
    flow: Flow
    worries: tuple[Worry, ...]


def of_boundaries(rows: QuerySet[Boundary] | None = None) -> list[BoundaryStanding]:
    """Each with its readers."""
    slowest = Consumer.objects.filter(boundary=OuterRef("pk")).order_by("cursor").values("cursor")[:1]
    is_handed_over = ~Q(source_url="") | Q(frontier__gte=0) | Q(slowest__isnull=True)
    oldest = Fact.objects.filter(boundary=OuterRef("pk"), offset=OuterRef("reached") + 1).values("written_at")
    found = (rows if rows is not None else Boundary.objects.all()).annotate(
        slowest=Subquery(slowest),
        reached=Case(When(is_handed_over, then=F("frontier")), default=F("slowest"), output_field=BigIntegerField()),
        waits_since=Subquery(oldest),
        needed=_needed(),
        needed_since=_written_after("pk", "needed"),
        **{f"reader_{name}": F(f"consumers__{name}") for name in READER},
        reader_waits_since=_written_after("pk", "consumers__cursor"),
        has_damaged_artifacts=Exists(Artifact.objects.exclude(damage="")),
        read_at=Now(),
    )
    ordered = found.select_related("from_zone", "to_zone").order_by(*ORDER, "consumers__name")
    return [_boundary(list(group)) for _, group in groupby(ordered, key=lambda row: row.pk)]


def of_consumers(rows: QuerySet[Consumer] | None = None) -> list[ConsumerStanding]:
    found = (rows if rows is not None else Consumer.objects.all()).annotate(
        waits_since=_written_after("boundary", "cursor"), read_at=Now()
    )
    return [
        _consumer(row, row.waits_since, row.read_at)
        for row in found.select_related("boundary__from_zone", "boundary__to_zone")
    ]


def orphans() -> int:
    """Artifacts that no fact refers to; an index has nothing else in it."""
    return Artifact.objects.filter(is_referenced=False).count()


def damaged() -> QuerySet[Artifact]:
    """Artifacts whose bytes are missing or corrupt, by an index that has nothing else in it."""
    return Artifact.objects.exclude(damage="").order_by("pk")


def _written_after(boundary: str, cursor: str) -> Coalesce:
    """When the fact after a cursor was written, in whichever buffer it is."""
    place = {"boundary": OuterRef(boundary), "offset": OuterRef(cursor) + 1}
    looks = (Subquery(buffer.objects.filter(**place).values("written_at")) for buffer in (Fact, ForwardedFact))
    return Coalesce(*looks)


def _needed() -> Case:
    """Up to where nobody needs the facts: not the slowest reader, nor the forward buffer if they begin here."""
    both = Least("frontier", Coalesce("slowest", "frontier"))
    return Case(When(source_url="", then=both), default=F("slowest"), output_field=BigIntegerField())


def _retention(group: list[Any]) -> Retention:
    row = group[0]
    needs = {f"consumer {one.reader_name}": one.reader_cursor + 1 for one in group if one.reader_id is not None}
    if not row.is_remote:
        needs[THE_FORWARD_BUFFER] = row.frontier + 1
    return watching.retention(86_400.0 * row.keep_days, _since(row.needed_since, row.read_at), needs)


def _boundary(group: list[Any]) -> BoundaryStanding:
    row = group[0]
    head = row.source_head if row.is_remote else row.next_offset - 1
    backlog = max(0, (row.reached if head is None else head) - row.reached)
    # What waits at a peer is not known here but by its number: it is as old as the last handover, at the most.
    began = row.waits_since or (row.handed_over_at or row.created_at if row.is_remote else None)
    flow = _flow(backlog, began, row.handed_over_at, row.read_at)
    rows = row.next_offset - row.first_offset
    row_percent = watching.percent(rows, row.row_ceiling)
    byte_percent = watching.percent(row.stored_bytes, row.byte_ceiling)
    fill = watching.fullest(row_percent, byte_percent)
    is_read_only = not row.is_remote and row.frontier < 0 and row.slowest is not None
    # Its readers speak for themselves.
    watched = STILL if is_read_only else flow
    retention = _retention(group)
    return BoundaryStanding(
        boundary=row,
        is_read_only=is_read_only,
        newest=row.reached if head is None else head,
        flow=flow,
        rows=rows,
        row_percent=row_percent,
        byte_percent=byte_percent,
        retention=retention,
        worries=tuple(watching.of_boundary(Gate(row.gate), row.alarm, fill, watched, retention)),
        readers=tuple(_reader(row) for row in group if row.reader_id is not None),
        has_damaged_artifacts=row.has_damaged_artifacts,
    )


def _reader(row: Any) -> ConsumerStanding:
    consumer = Consumer(boundary=row, **{name: getattr(row, f"reader_{name}") for name in READER})
    return _consumer(consumer, row.reader_waits_since, row.read_at)


def _consumer(row: Consumer, waits_since: datetime | None, now: datetime) -> ConsumerStanding:
    head = newest(row.boundary)
    flow = _flow(max(0, head - row.cursor), waits_since, row.confirmed_at or row.created_at, now)
    return ConsumerStanding(consumer=row, newest=head, flow=flow, worries=tuple(watching.of_consumer(flow)))


def _flow(backlog: int, began: datetime | None, confirmed: datetime | None, now: datetime) -> Flow:
    if not backlog:
        return STILL
    return Flow(backlog=backlog, lag=_since(began, now), silence=_since(_latest(confirmed, began), now))


def _since(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0


def _latest(*moments: datetime | None) -> datetime | None:
    return max((moment for moment in moments if moment), default=None)
