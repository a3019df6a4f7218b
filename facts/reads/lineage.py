"""Causes and effects of a fact, in both buffers, by indexes alone."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from ergon_site.access.database.clock import as_time
from facts.models import Fact, ForwardedFact, Written

GENERATIONS = 3
MOST = 20
COLUMNS = 'boundary_id, "offset", message_id, subject, predicate, causation_id, written_at'
# Inner selects, since SQLite takes no limit in a part of a union.
PART = """
SELECT * FROM (SELECT '{relation}' AS relation, '{buffer}' AS buffer, {columns} FROM {table}
                WHERE {condition} ORDER BY "offset" LIMIT {most}) {name}
"""
# In the columns of facts: those who read the boundaries of some, from the forward buffer if there is a peer.
READERS = """
SELECT * FROM (SELECT 'reader' AS relation, '' AS buffer, c.boundary_id, c.cursor, c.name, CAST(c.id AS text) AS key,
    b.source_url, CAST(NULL AS text) AS none, c.created_at
  FROM facts_consumer c JOIN facts_boundary b ON b.id = c.boundary_id
 WHERE c.retired_at IS NULL AND c.boundary_id IN ({places}) ORDER BY c.id LIMIT {most}) readers
"""
PLACES = "SELECT boundary_id FROM (SELECT boundary_id FROM {table} WHERE {condition} LIMIT {most}) {name}"
# What other apps may know of a fact: a handler that reads it has the message id as that of its transaction.
ITSELF = "boundary_id IN (SELECT id FROM facts_boundary) AND message_id = %s"
KNOWN_BY = {
    "fact": ("correlation_id = %s", "causation_id = %s", "transaction_id = %s", ITSELF),
    "forwardedfact": ("correlation_id = %s", "causation_id = %s", ITSELF),
}
BUFFERS = {"fact": Fact, "forwardedfact": ForwardedFact}


class Relative(NamedTuple):
    """Another fact, as a line of text needs it; `buffer` is the name of the list that it is in."""

    relation: str
    buffer: str
    boundary_id: int
    offset: int
    message_id: str
    subject: str
    predicate: str
    causation_id: str | None
    written_at: datetime

    @property
    def place(self) -> tuple[int, int]:
        return self.boundary_id, self.offset


class Reader(NamedTuple):
    """A consumer, and how far it has confirmed; it reads the forward buffer if facts are pulled from a peer."""

    key: int
    name: str
    boundary_id: int
    cursor: int
    is_remote: bool

    def reads(self, fact: Relative) -> bool:
        is_forwarded = fact.buffer == "forwardedfact"
        return self.boundary_id == fact.boundary_id and is_forwarded is self.is_remote


class Lineage(NamedTuple):
    """Causes, the nearest first; what names this one as its cause; what shares its correlation id."""

    causes: list[Relative]
    has_more_causes: bool
    followed: list[Relative]
    related: list[Relative]
    has_more_related: bool
    copies: list[Relative]


def lineage_of(fact: Written, boundaries: Sequence[int]) -> Lineage:
    asked: list[tuple[str, str, list[Any]]] = [
        ("copy", 'boundary_id = %s AND "offset" = %s', [fact.boundary_id, fact.offset]),
        ("followed", "causation_id = %s", [fact.message_id]),
    ]
    if fact.correlation_id:
        asked.append(("related", "correlation_id = %s", [fact.correlation_id]))
    if fact.causation_id and boundaries:
        asked.append(_named("cause", fact.causation_id, boundaries))
    found = _find(asked)
    copies = [one for one in found if one.relation == "copy" and one.buffer != fact._meta.model_name]  # noqa: SLF001
    followed = _once(one for one in found if one.relation == "followed")
    causes, has_more = _causes(fact, boundaries, _once(one for one in found if one.relation == "cause"))
    shown = {(fact.boundary_id, fact.offset), *(one.place for one in [*followed, *causes])}
    related = [one for one in found if one.relation == "related"]
    others = _once(one for one in related if one.place not in shown)
    return Lineage(causes, has_more, followed, others, len(related) >= MOST, copies)


def of_ids(ids: Collection[str]) -> tuple[list[Relative], list[Reader]]:
    """The first facts of these transactions, message, correlation or causation ids, and who reads their boundaries."""
    # Each id by itself: only so an index has them in their order.
    asked = [(buffer, condition, one) for buffer, known in KNOWN_BY.items() for condition in known for one in ids]
    parts, places = [], []
    for number, (buffer, condition, _) in enumerate(asked):
        table = BUFFERS[buffer]._meta.db_table  # noqa: SLF001
        known = {"columns": COLUMNS, "table": table, "condition": condition, "most": MOST, "name": f"part_{number}"}
        parts.append(PART.format(relation="same", buffer=buffer, **known))
        places.append(PLACES.format(**known))
    readers = READERS.format(places=" UNION ".join(places), most=MOST)
    found = _select([*parts, readers], [one for *_, one in asked] * 2)
    facts = {(one.buffer, one.place): one for one in found if one.relation != "reader"}
    return list(facts.values()), [
        Reader(int(one.subject), one.message_id, one.boundary_id, one.offset, bool(one.predicate))
        for one in found
        if one.relation == "reader"
    ]


def _causes(fact: Written, boundaries: Sequence[int], first: list[Relative]) -> tuple[list[Relative], bool]:
    """Generation by generation, of which the first is known; a chain that comes back to itself ends there."""
    chain: list[Relative] = []
    seen, wanted = {fact.message_id}, fact.causation_id
    for generation in range(GENERATIONS):
        if not wanted or wanted in seen or not boundaries:
            return chain, False
        seen.add(wanted)
        found = _once(_find([_named("cause", wanted, boundaries)])) if generation else first
        chain += found
        wanted = found[0].causation_id if found else None
    return chain, bool(wanted and wanted not in seen)


def _named(relation: str, message_id: str, boundaries: Sequence[int]) -> tuple[str, str, list[Any]]:
    marks = ", ".join(["%s"] * len(boundaries))
    return relation, f"boundary_id IN ({marks}) AND message_id = %s", [*boundaries, message_id]


def _once(found: Any) -> list[Relative]:
    """A fact that is in both buffers is told once, in the order in which they were written."""
    by_place: dict[tuple[int, int], Relative] = {}
    for one in found:
        by_place.setdefault(one.place, one)
    return sorted(by_place.values(), key=lambda one: (one.written_at, one.place))[:MOST]


def _find(asked: Sequence[tuple[str, str, list[Any]]]) -> list[Relative]:
    parts, given = [], []
    for relation, condition, values in asked:
        for buffer, model in BUFFERS.items():
            part = {"relation": relation, "buffer": buffer, "columns": COLUMNS, "condition": condition}
            parts.append(PART.format(**part, table=model._meta.db_table, most=MOST, name=f"{relation}_{buffer}"))  # noqa: SLF001
            given += values
    return _select(parts, given)


def _select(parts: Sequence[str], given: Sequence[Any]) -> list[Relative]:
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), given)
        return [Relative._make([*row[:-1], as_time(row[-1])]) for row in cursor.fetchall()]
