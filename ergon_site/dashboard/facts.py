"""Attention items and doctor findings of boundaries and consumers above a warning threshold."""

from collections.abc import Callable, Iterator, Mapping

from django.urls import reverse

from engines.reads.doctor import finding
from engines.reads.doctor.finding import Finding
from ergon_site.access.core.durations import span
from ergon_site.access.core.texts import sentence
from ergon_site.dashboard.attention import Concern, capped
from facts.core.watching import Worry
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

RESTORE = "upload the same content again under the same key, or restore the file in the storage"


def concerns() -> Iterator[Concern]:
    """An attention item for each boundary and consumer that has faults."""
    stands = health.of_boundaries()
    boundaries = (
        Concern(
            title=f"{one.boundary}: {first}"[:200],
            detail=" ".join(map(sentence, [*others, HINTS[one.worries[0]]])),
            address=reverse("ergon:facts_boundary_change", args=[one.boundary.pk]),
        )
        for one in stands
        if one.worries
        for first, *others in [[BOUNDARY[worry](one) for worry in one.worries]]
    )
    yield from capped(boundaries, reverse("ergon:facts_boundary_changelist"))
    consumers = (
        Concern(
            title=f"The consumer {one.consumer} of {one.consumer.boundary}: {told}"[:200],
            detail=sentence(READER_HINTS[one.worries[0]]),
            address=reverse("ergon:facts_consumer_change", args=[one.consumer.pk]),
        )
        for one in (reader for each in stands for reader in each.readers)
        if (told := ", ".join(CONSUMER[worry](one) for worry in one.worries))
    )
    yield from capped(consumers, reverse("ergon:facts_consumer_changelist"))
    if any(one.has_damaged_artifacts for one in stands):
        damaged = (
            Concern(
                title=f"The bytes of the artifact {artifact} are {artifact.damage}"[:200],
                detail=sentence(RESTORE),
                address=reverse("ergon:facts_artifact_change", args=[artifact.pk]),
            )
            for artifact in health.damaged()
        )
        yield from capped(damaged, f"{reverse('ergon:facts_artifact_changelist')}?kept=damaged")


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
