"""Facts as events of a timeline, and who has read them."""

from collections.abc import Collection, Iterable

from ergon_site.access.core.timeline import Event, Link
from facts.models import Consumer
from facts.reads import lineage
from facts.reads.lineage import Relative

TITLES = {"fact": "Fact", "forwardedfact": "Forwarded fact"}
MOST_CONSUMERS = 10


def events(ids: Collection[str]) -> list[Event]:
    """The facts that have one of these ids as their correlation or causation id, in both buffers."""
    found = {(one.buffer, one.place): one for one in lineage.of_ids(ids)}
    readers = _consumers({one.boundary_id for one in found.values()})
    return [
        Event(
            at=one.written_at,
            kind="fact",
            title=f"{TITLES[one.buffer]}: {one.subject} {one.predicate}",
            note=_read_by(one, readers.get(one.boundary_id, ())),
            target=Link(one.message_id, f"facts_{one.buffer}", f"{one.boundary_id}-{one.offset}"),
            links=tuple(
                Link(f"Consumer {consumer.name}", "facts_consumer", str(consumer.pk))
                for consumer in readers.get(one.boundary_id, ())
                if _reads(consumer, one)
            ),
        )
        for one in found.values()
    ]


def _consumers(boundaries: Collection[int]) -> dict[int, list[Consumer]]:
    found: dict[int, list[Consumer]] = {}
    if boundaries:
        rows = Consumer.objects.filter(boundary_id__in=boundaries, retired_at=None).select_related("boundary")
        for consumer in rows.order_by("pk"):
            found.setdefault(consumer.boundary_id, []).append(consumer)
    return {key: consumers[:MOST_CONSUMERS] for key, consumers in found.items()}


def _reads(consumer: Consumer, one: Relative) -> bool:
    """Consumers of a boundary that is pulled from a peer read the forward buffer, others the store buffer."""
    return (one.buffer == "forwardedfact") is consumer.boundary.is_remote


def _read_by(one: Relative, consumers: Iterable[Consumer]) -> str:
    mine = [consumer for consumer in consumers if _reads(consumer, one)]
    waiting = ", ".join(consumer.name for consumer in mine if consumer.cursor < one.offset)
    done = ", ".join(consumer.name for consumer in mine if consumer.cursor >= one.offset)
    return "; ".join(
        text for text in (done and f"confirmed by {done}", waiting and f"not yet read by {waiting}") if text
    )
