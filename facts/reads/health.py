"""The status of boundaries and consumers, in one statement for all and by the database's clock."""

from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db.models import BigIntegerField, Case, Exists, F, FilteredRelation, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce, Least, Now

from facts.core import watching
from facts.core.gates import Gate
from facts.core.watching import Flow, Retention, Worry
from facts.ledger import boundaries
from facts.ledger.reading import newest as newest_of
from facts.ledger.truncating import THE_FORWARD_BUFFER
from facts.models import Artifact, Boundary, Consumer, Fact, ForwardedFact

READER = ("id", "name", "cursor", "created_at", "created_by", "fetched_at", "confirmed_at")
ORDER = ("from_zone__name", "to_zone__name")
STILL = Flow(backlog=0, lag=0.0, silence=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryStanding:
    """A boundary, how far behind it is, and how full its store buffer.

    Facts that are appended here may be pulled by a peer that reads as a consumer, so the slowest reader counts as well
    as the forward buffer: a copy in this database says nothing of what the peer has.
    """

    boundary: Boundary
    is_read_only: bool
    newest: int
    # What everybody has: the forward buffer, and who reads the store buffer here.
    reached: int
    flow: Flow
    # The forward buffer alone.
    handoff: Flow
    # For how many seconds it has not been known what the peer has; 0 if it is known.
    unheard: float
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
    # For how many seconds its next fact is kept beyond its time; none if it is negative.
    overdue: float
    worries: tuple[Worry, ...]


def of_boundaries(rows: QuerySet[Boundary] | None = None) -> list[BoundaryStanding]:
    """Each with its readers; if not told otherwise, all that have not been retired."""
    reading = Consumer.objects.filter(boundary=OuterRef("pk"), retired_at__isnull=True)
    both = Least("frontier", Coalesce("slowest", "frontier"))
    found = (rows if rows is not None else boundaries.in_use()).annotate(
        slowest=Subquery(reading.order_by("cursor").values("cursor")[:1]),
        reached=Case(
            When(~Q(source_url=""), then=F("frontier")),
            When(Q(frontier__gte=0) | Q(slowest__isnull=True), then=both),
            default=F("slowest"),
            output_field=BigIntegerField(),
        ),
        waits_since=_appended_after("reached"),
        handoff_waits_since=_appended_after("frontier"),
        # Up to where nobody needs the facts: not the slowest reader, nor the forward buffer if they begin here.
        needed=Case(When(source_url="", then=both), default=F("slowest"), output_field=BigIntegerField()),
        needed_since=_written_after("pk", "needed"),
        active=FilteredRelation("consumers", condition=Q(consumers__retired_at__isnull=True)),
        **{f"reader_{name}": F(f"active__{name}") for name in READER},
        reader_waits_since=_written_after("pk", "active__cursor"),
        has_damaged_artifacts=Exists(Artifact.objects.exclude(damage="")),
        read_at=Now(),
    )
    ordered = found.select_related("from_zone", "to_zone").order_by(*ORDER, "active__name")
    return [_boundary(list(group)) for _, group in groupby(ordered, key=lambda row: row.pk)]


def of_consumers(rows: QuerySet[Consumer]) -> list[ConsumerStanding]:
    found = rows.annotate(waits_since=_written_after("boundary", "cursor"), read_at=Now())
    found = found.select_related("boundary__from_zone", "boundary__to_zone")
    return [_consumer(row, row.waits_since, row.read_at) for row in found]


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


def _appended_after(place: str) -> Subquery:
    """When the fact after an offset entered the store buffer."""
    row = Fact.objects.filter(boundary=OuterRef("pk"), offset=OuterRef(place) + 1)
    return Subquery(row.values("written_at"))


def _boundary(group: list[Any]) -> BoundaryStanding:
    row = group[0]
    head = row.source_head if row.is_remote else row.next_offset - 1
    newest = row.reached if head is None else head
    # What waits at a peer is not known here but by its number: it is as old as the last handover, at the most.
    at_peer = row.handed_over_at or row.created_at if row.is_remote else None
    # For how long it has not been known what a peer has: nobody asks it, or it does not answer.
    is_heard = not row.is_remote or row.is_retired
    heard_at = row.heard_at or row.handed_over_at or row.created_at
    unheard = 0.0 if is_heard else watching.unheard(_since(heard_at, row.read_at))
    flow, handoff = (
        _flow(max(0, newest - place), began or at_peer, row.handed_over_at, row.read_at)
        for place, began in ((row.reached, row.waits_since), (row.frontier, row.handoff_waits_since))
    )
    # While the head of a source is unknown, the lag grows by the clock; nothing is late that nobody waits for.
    flow, handoff = (replace(one, lag=0.0 if row.is_retired else max(one.lag, unheard)) for one in (flow, handoff))
    standing = BoundaryStanding(
        boundary=row,
        is_read_only=not row.is_remote and row.frontier < 0 and row.slowest is not None,
        newest=newest,
        reached=row.reached,
        flow=flow,
        handoff=handoff,
        unheard=unheard,
        rows=row.next_offset - row.first_offset,
        row_percent=watching.percent(row.next_offset - row.first_offset, row.row_ceiling),
        byte_percent=watching.percent(row.stored_bytes, row.byte_ceiling),
        retention=_retention(group),
        worries=(),
        readers=tuple(_reader(row) for row in group if row.reader_id is not None),
        has_damaged_artifacts=row.has_damaged_artifacts,
    )
    if row.is_retired:
        return standing
    # The readers of one that is only read speak for themselves.
    watched = STILL if standing.is_read_only else handoff
    worries = watching.of_boundary(Gate(row.gate), row.alarm, standing.fill, watched, standing.retention)
    return replace(standing, worries=tuple(worries))


def _retention(group: list[Any]) -> Retention:
    row = group[0]
    needs = {f"consumer {one.reader_name}": one.reader_cursor + 1 for one in group if one.reader_id is not None}
    if not row.is_remote and not row.is_retired:
        needs[THE_FORWARD_BUFFER] = row.frontier + 1
    return watching.retention(86_400.0 * row.keep_days, _since(row.needed_since, row.read_at), needs)


def _reader(row: Any) -> ConsumerStanding:
    consumer = Consumer(boundary=row, **{name: getattr(row, f"reader_{name}") for name in READER})
    return _consumer(consumer, row.reader_waits_since, row.read_at)


def _consumer(row: Consumer, waits_since: datetime | None, now: datetime) -> ConsumerStanding:
    head = newest_of(row.boundary)
    flow = _flow(max(0, head - row.cursor), waits_since, row.confirmed_at or row.created_at, now)
    overdue = _since(waits_since, now) - 86_400.0 * row.boundary.keep_days
    worries = () if row.is_retired else watching.of_consumer(flow, overdue)
    return ConsumerStanding(consumer=row, newest=head, flow=flow, overdue=overdue, worries=tuple(worries))


def _flow(backlog: int, began: datetime | None, confirmed: datetime | None, now: datetime) -> Flow:
    if not backlog:
        return STILL
    latest = max((moment for moment in (confirmed, began) if moment), default=None)
    return Flow(backlog=backlog, lag=_since(began, now), silence=_since(latest, now))


def _since(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0
