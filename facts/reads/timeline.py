"""Facts as events of a timeline, and who has read them."""

from collections.abc import Collection, Sequence

from ergon_site.access.core.timeline import Event, Link
from facts.reads import lineage
from facts.reads.lineage import Reader, Relative

TITLES = {"fact": "Fact", "forwardedfact": "Forwarded fact"}


def events(ids: Collection[str]) -> list[Event]:
    """The facts that these transactions appended or read, or that have one of these as correlation or causation id."""
    found, readers = lineage.of_ids(ids)
    return [_event(one, [reader for reader in readers if reader.reads(one)]) for one in found]


def _event(one: Relative, readers: Sequence[Reader]) -> Event:
    done = ", ".join(reader.name for reader in readers if reader.cursor >= one.offset)
    waiting = ", ".join(reader.name for reader in readers if reader.cursor < one.offset)
    told = (done and f"confirmed by {done}", waiting and f"not yet read by {waiting}")
    return Event(
        at=one.written_at,
        kind="fact",
        title=f"{TITLES[one.buffer]}: {one.subject} {one.predicate}",
        note="; ".join(text for text in told if text),
        target=Link(one.message_id, f"facts_{one.buffer}", f"{one.boundary_id}-{one.offset}"),
        links=tuple(Link(f"Consumer {reader.name}", "facts_consumer", str(reader.key)) for reader in readers),
    )
