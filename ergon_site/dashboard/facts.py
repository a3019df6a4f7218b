"""Attention items, status line and doctor findings of boundaries and consumers above a warning threshold."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from engines.reads.doctor import finding
from engines.reads.doctor.finding import Finding
from ergon_site.access.core.attention import Item, Severity
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right
from ergon_site.access.core.texts import sentence
from ergon_site.dashboard.attention import LONGEST_TITLE, MOST_OF_A_KIND, Act, Face, listed, page, short
from facts.core.gates import Gate
from facts.core.watching import Worry
from facts.models import Boundary
from facts.reads import health
from facts.reads.health import BoundaryStanding, ConsumerStanding

HINTS = {
    Worry.ALARM: "compare both sides; fix the source and open the gate, or skip the offset (boundary skip)",
    Worry.GATE: "find out why, then open the gate",
    Worry.FILL: "let consumers and handoff catch up, truncate, or raise the limit",
    Worry.RETENTION: "check that the consumers named still run; retire those that will not read again",
    Worry.SILENCE: "check that the command forward runs",
    Worry.BACKLOG: "check that the command forward keeps up",
    Worry.LAG: "check that the command forward runs",
}
READS = "check that its reader runs"
READER_HINTS = {
    Worry.HOLDING: f"{READS}; if it will not read again, retire it (consumer retire)",
    Worry.SILENCE: READS,
    Worry.BACKLOG: READS,
}

STOPPED = (Worry.ALARM, Worry.GATE)
FACTS = ("fact", "facts")
RESTORE = "upload the same content again under the same key, or restore the file in the storage"


def items(stands: Sequence[BoundaryStanding]) -> Iterator[Item]:
    """An attention item for each boundary and consumer that has faults."""
    for one in stands:
        if one.worries:
            yield from _boundary(one)
        yield from (_consumer(reader) for reader in one.readers if reader.worries)
    if any(one.has_damaged_artifacts for one in stands):
        for artifact in health.damaged()[:MOST_OF_A_KIND]:
            yield Item(
                key=f"artifact:{artifact.pk}",
                severity=Severity.CRITICAL,
                title=f"The bytes of the artifact {short(artifact)} are {artifact.damage}"[:LONGEST_TITLE],
                detail=sentence(RESTORE),
                shown=Face(
                    address=page("facts_artifact_change", artifact.pk),
                    behind=listed("facts_artifact_changelist", kept="damaged"),
                ),
            )


def _boundary(one: BoundaryStanding) -> Iterator[Item]:
    """The gravest fault of a boundary, and those that follow from it."""
    boundary, (first, *others) = one.boundary, one.worries
    # Facts are kept too long because a consumer does not read them.
    readers = [reader for reader in one.readers if Worry.HOLDING in reader.worries]
    causes = tuple(f"consumer:{reader.consumer.pk}" for reader in readers) if first is Worry.RETENTION else ()
    opens = Act(title="Open gate", name="facts_boundary_open_gate", key=boundary.pk, right=Right.OPERATE)
    key, address = f"boundary:{boundary.pk}", page("facts_boundary_change", boundary.pk)
    yield Item(
        key=key,
        severity=_severity(first, boundary),
        title=f"{short(boundary)}: {BOUNDARY[first](one)}"[:LONGEST_TITLE],
        detail=sentence(HINTS[first]),
        cause=f"{first}: {boundary.alarm or boundary.gate_reason if first in STOPPED else ''}"[:LONGEST_TITLE],
        caused_by=causes,
        shown=Face(
            address=address,
            behind=page("facts_boundary_changelist"),
            acts=(opens,) if first in STOPPED and boundary.gate != Gate.RECONCILING else (),
        ),
    )
    for worry in others:
        yield Item(
            key=f"flow:{boundary.pk}:{worry}",
            severity=Severity.NOTICE,
            title=sentence(BOUNDARY[worry](one))[:LONGEST_TITLE],
            count=one.handoff.backlog if worry is Worry.BACKLOG else 1,
            unit=FACTS if worry is Worry.BACKLOG else ("", ""),
            caused_by=(key,),
            shown=Face(address=address),
        )


def _consumer(one: ConsumerStanding) -> Item:
    told = ", ".join(CONSUMER[worry](one) for worry in one.worries)
    return Item(
        key=f"consumer:{one.consumer.pk}",
        severity=Severity.WARNING,
        title=f"The consumer {short(one.consumer)} of {short(one.consumer.boundary)}: {told}"[:LONGEST_TITLE],
        detail=sentence(READER_HINTS[one.worries[0]]),
        cause=one.worries[0].value,
        count=max(1, one.flow.backlog),
        shown=Face(address=page("facts_consumer_change", one.consumer.pk), behind=page("facts_consumer_changelist")),
    )


def _severity(worry: Worry, boundary: Boundary) -> Severity:
    if worry is Worry.GATE and boundary.gate_by:
        return Severity.NOTICE
    is_closed = worry is Worry.GATE and boundary.gate == Gate.AUTONOMOUS
    return Severity.CRITICAL if is_closed or worry is Worry.ALARM else Severity.WARNING


def status(stands: Sequence[BoundaryStanding]) -> str:
    """The facts in one sentence."""
    if not stands:
        return "No boundaries."
    closed = sum(one.boundary.gate == Gate.AUTONOMOUS for one in stands)
    behind = sum(bool(one.worries) for one in stands)
    readers = [reader for one in stands for reader in one.readers]
    slow = sum(bool(reader.worries) for reader in readers)
    told = [
        f"{closed:,} closed" if closed else "",
        f"{behind - closed:,} above a warning threshold" if behind > closed else "",
        f"{slow:,} of {len(readers):,} consumers behind" if slow else "",
    ]
    count = f"{len(stands):,} {'boundary' if len(stands) == 1 else 'boundaries'}"
    faults = ", ".join(filter(None, told))
    return f"{count}: {faults}." if faults else f"{count}, all facts handed over in time."


def findings() -> Iterator[Finding]:
    """The same for the doctor. A boundary that has stopped by an alarm is a problem, all else is worth a look."""
    stands, told = health.of_boundaries(), 0
    readers = [reader for one in stands for reader in one.readers]
    for one in stands:
        for worry in one.worries:
            told += 1
            make = finding.problem if worry is Worry.ALARM else finding.warning
            yield make("boundaries", f"{one.boundary}: {BOUNDARY[worry](one)}", HINTS[worry])
    for reader in readers:
        for worry in reader.worries:
            told += 1
            text = f"{reader.consumer}: {CONSUMER[worry](reader)}"
            yield finding.warning("consumers of facts", text, READER_HINTS[worry])
    if damaged := health.damaged().count():
        text = f"the bytes of {damaged:,} {'artifact' if damaged == 1 else 'artifacts'} are missing or corrupt"
        yield finding.problem("artifacts", text, RESTORE)
    if not told:
        counts = f"boundaries: {len(stands):,}, consumers: {len(readers):,}"
        yield finding.ok("boundaries", f"none above a warning threshold ({counts})")


def _gate(one: BoundaryStanding) -> str:
    boundary = one.boundary
    if boundary.gate == "reconciling":
        return f"reconciling, {one.handoff.backlog:,} to hand over"
    failed = "1 failed handoff" if boundary.failures == 1 else f"{boundary.failures:,} failed handoffs"
    who = f"by {boundary.gate_by}" if boundary.gate_by else f"after {failed}"
    return f"the gate is closed {who}{f': {boundary.gate_reason}' if boundary.gate_reason else ''}".rstrip(".")


def _lag(one: BoundaryStanding) -> str:
    if one.unheard:
        happened = "been asked" if one.boundary.alarm or one.boundary.gate_by else "responded"
        return f"the peer has not {happened} for {span(one.unheard)}, so its newest facts are unknown"
    return f"{span(one.handoff.lag)} behind"


def _behind(backlog: int) -> str:
    return f"{backlog:,} {'fact' if backlog == 1 else 'facts'} behind"


BOUNDARY: Mapping[Worry, Callable[[BoundaryStanding], str]] = {
    Worry.ALARM: lambda one: f"alarm: {one.boundary.alarm}".rstrip("."),
    Worry.GATE: _gate,
    Worry.FILL: lambda one: f"the store buffer is {int(one.fill or 0)} % full",
    Worry.RETENTION: lambda one: (
        f"facts are {span(one.retention.overdue)} past their retention, "
        f"held back by {', '.join(one.retention.held_back_by)}"
    ),
    Worry.SILENCE: lambda one: f"nothing handed over for {span(one.handoff.silence)}",
    Worry.BACKLOG: lambda one: f"{one.handoff.backlog:,} facts not handed over yet",
    Worry.LAG: _lag,
}
CONSUMER: Mapping[Worry, Callable[[ConsumerStanding], str]] = {
    Worry.HOLDING: lambda one: f"holds back truncation: facts are {span(one.overdue)} past their retention",
    Worry.SILENCE: lambda one: f"nothing confirmed for {span(one.flow.silence)}, {_behind(one.flow.backlog)}",
    Worry.BACKLOG: lambda one: _behind(one.flow.backlog),
}
