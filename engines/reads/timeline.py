"""What happened to transactions, from their submission to their end, as events on one axis of time."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from django.db.models import Q

from engines.core.states import STAGE_OF, AttemptOutcome, State
from engines.models import Attempt, BulkItem, DeadLetter, Schedule, TransactionRecord
from ergon_site.access.core.timeline import MERGED, Event, Link

SCHEDULED = "schedule:"
# Transactions of one correlation id or of one parent.
MOST_RELATIVES = 20
LIGHT = ("pk", "uid", "state", "replay_of", "parent_id", "created_at", "started_at", "finished_at", "pipeline__name")


def link_to(record: TransactionRecord) -> Link:
    return Link(record.uid, "engines_transactionrecord", str(record.pk))


def events(ids: Collection[str]) -> list[Event]:
    """The events of the transactions that go by these ids, or share one as their correlation id or parent."""
    light = TransactionRecord.objects.select_related("pipeline").only(*LIGHT)
    found = {record.pk: record for record in light.filter(uid__in=ids)[:MOST_RELATIVES]}
    for column in ("correlation_id", "parent_id"):
        same = light.filter(**{f"{column}__in": ids}).order_by(column, "pk")[:MOST_RELATIVES]
        found |= {record.pk: record for record in same}
    records = list(found.values())
    letters = DeadLetter.objects.defer("payload", "traceback", "details").filter(transaction_id__in=found)
    told = [event for record in records for event in of_record(record)]
    told += [event for letter in letters for event in of_letter(letter)]
    return [*told, *_attempts(found)][: MERGED + 1]


def of_record(record: TransactionRecord, links: tuple[Link, ...] = (), note: str = "") -> Iterator[Event]:
    """Its submission and its end."""
    submitted = f"Submitted to {record.pipeline.name}"
    target = link_to(record)
    yield Event(at=record.created_at, kind="transaction", title=submitted, target=target, links=links, note=note)
    if record.finished_at is not None:
        word = record.word
        yield Event(at=record.finished_at, kind="end", title=word.capitalize(), outcome=word, target=target)


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


def around(record: TransactionRecord, letter: DeadLetter | None) -> list[Event]:
    """A transaction without its attempts: where it comes from, what it led to, and what people decided."""
    relatives = TransactionRecord.objects.only(*LIGHT).select_related("pipeline")
    # The transaction that it replays, and its own replays.
    family = list(relatives.filter(Q(pk=record.replay_of or 0) | Q(replay_of=record.pk)).order_by("pk"))
    ancestor = next((one for one in family if one.pk == record.replay_of), None)
    origins = list(_origins(record, ancestor))
    operations = _operations(record, letter)
    if record.replay_of:
        origins += operations.get(record.replay_of, [])
    source = "" if not record.source or record.source.startswith(SCHEDULED) else f"From {record.source}"
    told = list(of_record(record, tuple(origins), source))
    if letter is not None:
        told += of_letter(letter, operations.get(record.pk, []))
    told += [_led_to("Replayed as", one) for one in family if one is not ancestor]
    children = relatives.filter(parent_id=record.uid, replay_of=None).order_by("parent_id", "pk")[: MERGED + 1]
    told += [_led_to("Led to", one) for one in children]
    if record.state == State.PENDING and record.available_at > record.created_at:
        told.append(Event(at=record.available_at, kind="due", title="Next attempt" if record.error else "Due"))
    return told


def _led_to(verb: str, one: TransactionRecord) -> Event:
    title = f"{verb} {one.uid} in {one.pipeline.name}"
    return Event(at=one.created_at, kind="relative", title=title, outcome=one.word, target=link_to(one))


def _origins(record: TransactionRecord, ancestor: TransactionRecord | None) -> Iterator[Link]:
    if ancestor is not None:
        yield Link(f"Replay of {ancestor.uid}", "engines_transactionrecord", str(ancestor.pk))
    elif record.parent_id and (parent := TransactionRecord.objects.only("pk").filter(uid=record.parent_id).first()):
        yield Link(f"From {record.parent_id}", "engines_transactionrecord", str(parent.pk))
    name = (record.source or "").removeprefix(SCHEDULED)
    is_scheduled = name != record.source and (record.dedupe_key or "").startswith(SCHEDULED)
    if is_scheduled and (schedule := Schedule.objects.only("pk").filter(name=name).first()):
        yield Link(f"Schedule {name}", "engines_schedule", str(schedule.pk))


def _operations(record: TransactionRecord, letter: DeadLetter | None) -> dict[int, list[Link]]:
    """The bulk operations that decided about the dead letter of a transaction, and about that of the one it replays."""
    if letter is None and record.replay_of is None:
        return {}
    keys = [key for key in (record.pk, record.replay_of) if key is not None]
    items = BulkItem.objects.filter(letter__transaction_id__in=keys, result="done").order_by("pk")
    found: dict[int, list[Link]] = {}
    for key, operation in items.values_list("letter__transaction_id", "operation_id"):
        link = Link(f"Bulk operation {operation}", "engines_bulkoperation", str(operation))
        found.setdefault(int(key or 0), []).append(link)
    return found


def _attempts(records: dict[int, TransactionRecord]) -> Iterator[Event]:
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
            target=link_to(records[row.transaction_id]),
        )


def ids_of(record: TransactionRecord) -> set[str]:
    """The ids under which other apps know a transaction: its correlation id only if it shares that with nobody."""
    ids = {record.uid}
    if record.correlation_id:
        same = TransactionRecord.objects.filter(correlation_id=record.correlation_id).order_by("correlation_id", "pk")
        keys = same.values_list("pk", "replay_of")[: MOST_RELATIVES + 1]
        # The one that it replays has the same, and so have replays of both.
        family = {record.pk, record.replay_of} - {None}
        if all(family & {key, replayed} for key, replayed in keys):
            ids.add(record.correlation_id)
    return ids
