"""What happened to transactions, from their submission to their end, as events on one axis of time."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q

from engines.core.states import STAGE_OF, AttemptOutcome, State
from engines.models import Attempt, DeadLetter, TransactionRecord
from ergon_site.access.core.timeline import MERGED, Event, Link
from ergon_site.access.database.clock import as_time

SCHEDULED = "schedule:"
# Transactions of one correlation id or of one parent.
MOST_RELATIVES = 20
# Inner selects, since SQLite takes no limit in a part of a union.
PART = """
SELECT * FROM (SELECT '{relation}' AS relation, t.id, t.uid, t.state, t.replay_of, p.name, t.finished_at, t.created_at
  FROM engines_transactionrecord t JOIN engines_pipeline p ON p.id = t.pipeline_id
 WHERE {condition} ORDER BY t.id LIMIT {most}) AS part_{place}
"""
OPERATIONS = """
SELECT 'operation', o.id, '', 0, l.transaction_id, o.verb, o.finished_at, o.created_at
  FROM engines_deadletter l JOIN engines_bulkitem i ON i.letter_id = l.id AND i.result = 'done'
  JOIN engines_bulkoperation o ON o.id = i.operation_id WHERE l.transaction_id IN (%s, %s)
"""
SCHEDULES = """
SELECT 'schedule', s.id, s.name, 0, NULL, '', s.last_run_at, s.created_at FROM engines_schedule s WHERE s.name = %s
"""
ORIGINS = {
    "ancestor": ("Replay of", "engines_transactionrecord"),
    "parent": ("From", "engines_transactionrecord"),
    "schedule": ("Schedule", "engines_schedule"),
    "operation": ("Bulk operation", "engines_bulkoperation"),
}
LED_TO = {"replay": "Replayed as", "child": "Led to"}

Asked = tuple[str, str, list[Any]]


class Relative(NamedTuple):
    """A row that a transaction is linked with. `replay_of` is of an operation the transaction it decided about."""

    relation: str
    key: int
    uid: str
    state: int
    replay_of: int | None
    pipeline: str
    finished_at: datetime | None
    created_at: datetime

    @property
    def link(self) -> Link:
        return Link(self.uid, "engines_transactionrecord", str(self.key))

    @property
    def word(self) -> str:
        return State(self.state).word

    def is_operation_on(self, key: int | None) -> bool:
        return self.relation == "operation" and self.replay_of == key

    def is_origin(self, record: TransactionRecord) -> bool:
        """Whether the transaction comes from it: an operation on a dead letter made the replay of that."""
        is_older = self.relation in ORIGINS and self.relation != "operation"
        return is_older or (record.replay_of is not None and self.is_operation_on(record.replay_of))

    def origin(self) -> Link:
        title, page = ORIGINS[self.relation]
        return Link(f"{title} {self.uid or self.key}", page, str(self.key))

    def event(self) -> Event:
        """Of a transaction that another one led to: that it did."""
        title = f"{LED_TO[self.relation]} {self.uid} in {self.pipeline}"
        return Event(at=self.created_at, kind="relative", title=title, outcome=self.word, target=self.link)

    def events(self, links: tuple[Link, ...] = (), note: str = "") -> Iterator[Event]:
        """Of a transaction: its submission and its end."""
        begun = f"Submitted to {self.pipeline}"
        yield Event(at=self.created_at, kind="transaction", title=begun, target=self.link, links=links, note=note)
        if self.finished_at is not None:
            title = self.word.capitalize()
            yield Event(at=self.finished_at, kind="end", title=title, outcome=self.word, target=self.link)


def events(ids: Collection[str]) -> list[Event]:
    """The events of the transactions that go by these ids, or share one as their correlation id or parent."""
    columns = ("uid", "correlation_id", "parent_id")
    # Each id by itself: only so an index has them in their order.
    asked = [("same", f"t.{column} = %s", [one]) for column in columns for one in sorted(ids)]
    found = {one.key: one for one in _select(*_parts(asked, MOST_RELATIVES))}
    # Also of what is kept elsewhere: a call to a provider, a fact that a handler read.
    asked_for = Q(transaction_id__in=found) | Q(uid__in=ids, transaction_id=None)
    letters = DeadLetter.objects.defer("payload", "traceback", "details").filter(asked_for)[:MOST_RELATIVES]
    told = [event for one in found.values() for event in one.events()]
    told += [event for letter in letters for event in of_letter(letter)]
    return [*told, *_attempts(found)][: MERGED + 1]


def relatives_of(record: TransactionRecord) -> list[Relative]:
    """All that a transaction is linked with by its row, by indexes and in one statement."""
    asked: list[Asked] = [("replay", "t.replay_of = %s", [record.pk])]
    asked.append(("child", "t.parent_id = %s AND t.replay_of IS NULL", [record.uid]))
    if record.replay_of:
        asked.append(("ancestor", "t.id = %s", [record.replay_of]))
    elif record.parent_id:
        asked.append(("parent", "t.uid = %s", [record.parent_id]))
    if record.correlation_id:
        asked.append(("same", "t.correlation_id = %s", [record.correlation_id]))
    texts, given = _parts(asked, MERGED + 1)
    if record.state == State.FAILED or record.replay_of:
        texts.append(OPERATIONS)
        given += [record.pk, record.replay_of or record.pk]
    name = (record.source or "").removeprefix(SCHEDULED)
    if name != record.source and (record.dedupe_key or "").startswith(SCHEDULED):
        texts.append(SCHEDULES)
        given.append(name)
    return _select(texts, given)


def _parts(asked: Sequence[Asked], most: int) -> tuple[list[str], list[Any]]:
    texts = [
        PART.format(relation=relation, condition=condition, most=most, place=place)
        for place, (relation, condition, _) in enumerate(asked)
    ]
    return texts, [value for *_, values in asked for value in values]


def _select(texts: Sequence[str], given: Sequence[Any]) -> list[Relative]:
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(texts), given)
        rows = cursor.fetchall()
    return [Relative._make([*row[:-2], row[-2] and as_time(row[-2]), as_time(row[-1])]) for row in rows]


def around(record: TransactionRecord, letter: DeadLetter | None, relatives: Sequence[Relative]) -> list[Event]:
    """A transaction without its attempts: where it comes from, what it led to, and what people decided."""
    origins = tuple(one.origin() for one in relatives if one.is_origin(record))
    source = "" if not record.source or record.source.startswith(SCHEDULED) else f"From {record.source}"
    about = (record.pk, record.uid, record.state, record.replay_of, record.pipeline.name)
    told = list(Relative("itself", *about, record.finished_at, record.created_at).events(origins, source))
    if letter is not None:
        told += of_letter(letter, (one.origin() for one in relatives if one.is_operation_on(record.pk)))
    told += [one.event() for one in relatives if one.relation in LED_TO]
    if record.cancel_requested_at is not None:
        told.append(Event(at=record.cancel_requested_at, kind="decision", title="Cancellation requested"))
    if record.state == State.PENDING and record.available_at > record.created_at:
        told.append(Event(at=record.available_at, kind="due", title="Next attempt" if record.error else "Due"))
    return told


def of_letter(letter: DeadLetter, operations: Iterable[Link] = ()) -> Iterator[Event]:
    """The dead letter, and the decision about it."""
    target = Link(f"dead letter {letter.pk}", "engines_deadletter", str(letter.pk))
    group = Link("Its group", "engines_deadlettergroup", str(letter.group_id))
    title = f"Dead letter: {letter.error_type}"
    yield Event(at=letter.created_at, kind="dead letter", title=title, target=target, links=(group,))
    if letter.settled_at is not None:
        title = f"{letter.state.capitalize()} by {letter.settled_by}"
        note = f"Reason: {letter.reason}" if letter.reason else ""
        yield Event(at=letter.settled_at, kind="decision", title=title, note=note, links=tuple(operations))


def of_attempts(attempts: Iterable[dict[str, Any]]) -> list[Event]:
    """Attempts as `explain.attempts_of` tells them, with all their details."""
    return [
        Event(
            at=datetime.fromisoformat(one["started_at"]),
            kind="attempt",
            title=f"{one['step']}: attempt {one['number']} of {one['of']}",
            outcome=one["outcome"],
            duration=one["duration"],
            details=one,
        )
        for one in attempts
    ]


def _attempts(records: Mapping[int, Relative]) -> Iterator[Event]:
    """The attempts of several transactions, without their errors: their own pages have those."""
    rows = Attempt.objects.filter(transaction_id__in=records).defer("traceback", "message")
    for row in rows.order_by("transaction_id", "delivery", "step", "number")[: MERGED + 1]:
        yield Event(
            at=row.started_at,
            kind="attempt",
            title=f"{STAGE_OF[row.step].value}: attempt {row.number} of {row.of_total}",
            outcome=AttemptOutcome(row.outcome).name.lower(),
            duration=row.duration,
            note=row.error_type or "",
            target=records[row.transaction_id].link,
        )


def ids_of(record: TransactionRecord, relatives: Iterable[Relative]) -> set[str]:
    """The ids under which other apps know a transaction: its correlation id only if it shares that with nobody."""
    # The one that it replays has the same, and so have replays of both.
    family = {record.pk, record.replay_of} - {None}
    same = [{one.key, one.replay_of} for one in relatives if one.relation == "same"]
    ids = {record.uid, record.correlation_id} if all(family & keys for keys in same) else {record.uid}
    return {one for one in ids if one}
