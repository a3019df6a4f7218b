"""VERBS: append, append_many. Offsets come from a counter that is locked until the commit, so they have no gaps."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple, TypeAlias

import orjson
from django.db import connection

from ergon_site.access.conf import current_transaction
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database import pooler
from ergon_site.access.database.calls import retry_conflicts, short_transaction, time_limit
from ergon_site.access.database.group_commit import Group, Lane
from facts import telemetry
from facts.conf import settings
from facts.core.errors import BufferFullError, ConflictingDuplicateError, FactError
from facts.core.steps import Appended
from facts.ledger import boundaries, postgresql, references, remembering
from facts.ledger.entries import Entry, prepare
from facts.models import Boundary, Fact

ROUND_TRIP = 1000
LONGEST_ID = 200

Draft: TypeAlias = Mapping[str, Any] | Entry


class Attributed(NamedTuple):
    """A draft, and the transaction whose handler appends it."""

    draft: Draft
    transaction_id: str


Given: TypeAlias = Draft | Attributed
Result: TypeAlias = Appended | FactError
OnConnection: TypeAlias = Callable[[Callable[[Any], int | None]], int | None]


def append(draft: Draft) -> Appended:
    """Keep a fact. It is confirmed by returning; inside the caller's transaction, by that one's commit."""
    with telemetry.Appending():
        # What comes over HTTP is prepared already, and of no handler.
        [given] = [draft] if isinstance(draft, Entry) else _attributed([draft])
        result = _write([given])[0] if connection.in_atomic_block else _group.put(given)
        if isinstance(result, FactError):
            raise result
        if result.is_duplicate:
            telemetry.duplicates.add(1)
        return result


def release_connection() -> None:
    """Close the group's own connection; it opens again when it is needed."""
    _lane.close()


def append_many(drafts: Iterable[Draft]) -> list[Result]:
    """Keep many, each on its own: for each what `append` would have returned or raised, in their order."""
    results: list[Result] = []
    given = iter(_attributed(drafts))
    while some := list(islice(given, ROUND_TRIP)):
        results += telemetry.appended_many(_append_some, some)
    return results


def _attributed(drafts: Iterable[Draft]) -> Iterable[Given]:
    """The drafts, with the transaction whose handler appends them: who prepares them may be another thread."""
    transaction_id = current_transaction()
    if transaction_id is None or len(transaction_id) > LONGEST_ID or not is_storable(transaction_id):
        return drafts
    return (Attributed(draft, transaction_id) for draft in drafts)


def _append_some(drafts: Sequence[Given]) -> list[Result]:
    if connection.vendor != "postgresql" or len(drafts) < postgresql.COPIED_FROM:
        return _write(drafts)
    left, prepared = iter(drafts), list[Entry | FactError]()
    first = postgresql.copy(connection, _prepared_in_turn(left, prepared))
    if first is None:
        return _write([*prepared, *left])
    offsets = count(first)
    return [
        one if isinstance(one, FactError) else Appended(next(offsets), one.message_id, is_duplicate=False)
        for one in prepared
    ]


def _prepared_in_turn(drafts: Iterable[Given], prepared: list[Entry | FactError]) -> Iterator[Entry]:
    """Entries, each prepared when it is asked for; `prepared` receives them, and the refusals between them."""
    for draft in drafts:
        prepared.append(one := _prepared(draft))
        if isinstance(one, Entry):
            yield one


def _prepared(draft: Given | FactError) -> Entry | FactError:
    if isinstance(draft, Entry):
        return draft
    if isinstance(draft, Attributed):
        entry = _prepared(draft.draft)
        return entry if isinstance(entry, FactError) else entry._replace(transaction_id=draft.transaction_id)
    try:
        return draft if isinstance(draft, FactError) else prepare(draft)
    except FactError as error:
        return error


def _on_own_connection(work: Callable[[Any], int | None]) -> int | None:
    carried = partial(work, connection)
    return pooler.carry_out(connection, carried, carried)


def _write_for_all(drafts: Sequence[Given]) -> list[Result]:
    """In time: all others of this process wait until it is done."""
    limit = settings().database_timeout
    return _write(drafts, partial(_lane.carry_out, limit=limit), limit)


def _write(
    drafts: Sequence[Given | FactError], carry_out: OnConnection = _on_own_connection, limit: float | None = None
) -> list[Result]:
    """Write them, boundary by boundary, each in a transaction of its own: at once, if all are new and there is room."""
    results: list[Any] = [_prepared(draft) for draft in drafts]
    places: dict[tuple[str, str], list[int]] = {}
    for place, entry in enumerate(results):
        if isinstance(entry, Entry):
            places.setdefault(entry[:2], []).append(place)
    if len(places) > 1 and connection.in_atomic_block:
        boundaries.hold(places)
    for zones, mine in places.items():
        entries: list[Entry] = [results[place] for place in mine]
        first = None
        if connection.vendor == "postgresql" and not any(entry.references for entry in entries):
            first = carry_out(partial(postgresql.append, entries=entries))
        if first is None:
            with time_limit(limit):
                written: Sequence[Result] = _write_one_by_one(zones, entries)
        else:
            written = [Appended(offset, entry.message_id, False) for offset, entry in enumerate(entries, first)]  # noqa: FBT003
        for place, result in zip(mine, written, strict=True):
            results[place] = result
    return results


def _write_one_by_one(zones: tuple[str, str], entries: Sequence[Entry]) -> Sequence[Result]:
    try:
        boundary = boundaries.find_open(*zones)
    except FactError as refusal:
        return [refusal] * len(entries)
    return _write_known(boundary.pk, entries)


@retry_conflicts
@short_transaction()
def _write_known(boundary_id: int, entries: Sequence[Entry]) -> list[Result]:
    """Write one by one, under the lock: duplicates get their existing offset, and excess is refused."""
    boundary = Boundary.objects.select_for_update().get(pk=boundary_id)
    if boundary.removed_offset is not None:
        postgresql.note_truncated(entries[0].zones)
    ids = {entry.message_id for entry in entries}
    rows = Fact.objects.filter(boundary_id=boundary_id, message_id__in=ids)
    known: dict[str, tuple[int, str, str | None]] = {
        **{message_id: (*place, None) for message_id, place in remembering.known(boundary, ids).items()},
        **{row[0]: row[1:] for row in rows.values_list("message_id", "offset", "digest", "content")},
    }
    artifacts = references.lock(entries)
    results: list[Result] = []
    new: list[tuple[int, Entry]] = []
    for entry in entries:
        result = _judge(entry, boundary, known, artifacts)
        results.append(result)
        if isinstance(result, Appended) and not result.is_duplicate:
            known[entry.message_id] = (result.offset, entry.digest, entry.text)
            new.append((result.offset, entry))
            boundary.next_offset += 1
            boundary.stored_bytes += entry.size
    Fact.objects.bulk_create(
        Fact(boundary_id=boundary_id, offset=offset, transaction_id=entry.transaction_id, **entry.fields)
        for offset, entry in new
    )
    references.keep(boundary_id, new, artifacts)
    # Also if nothing is new: a duplicate is confirmed, and without a write the commit waits for no standby.
    Boundary.objects.filter(pk=boundary_id).update(next_offset=boundary.next_offset, stored_bytes=boundary.stored_bytes)
    return results


def _judge(entry: Entry, boundary: Boundary, known: Mapping[str, Any], artifacts: Mapping[Any, Any]) -> Result:
    if entry.message_id in known:
        offset, digest, content = known[entry.message_id]
        if digest == entry.digest:
            return Appended(offset, entry.message_id, is_duplicate=True)
        return ConflictingDuplicateError(_difference(entry, content), "/envelope/message_id")
    if (refusal := references.refusal(entry, artifacts)) is not None:
        return refusal
    rows, size = boundary.next_offset - boundary.first_offset + 1, boundary.stored_bytes + entry.size
    is_full = boundary.row_ceiling is not None and rows > boundary.row_ceiling
    if is_full or (boundary.byte_ceiling is not None and size > boundary.byte_ceiling):
        name = " → ".join(entry.zones)
        msg = f"the store buffer of {name} has reached its ceiling: new facts are refused, stored facts are kept"
        return BufferFullError(msg)
    return Appended(boundary.next_offset, entry.message_id, is_duplicate=False)


def _difference(entry: Entry, content: str | None) -> str:
    used = f"the message id {entry.message_id!r} was already used with different content"
    if content is None:
        return f"{used}, since truncated"
    before, now = orjson.loads(content), orjson.loads(entry.text)
    names = sorted(
        name
        for part in ("envelope", "fact")
        for name in {*before[part], *now[part]}
        # As they are written: true and 1 are the same to Python, and other contents.
        if orjson.dumps(before[part].get(name)) != orjson.dumps(now[part].get(name))
    )
    hint = "; a retry must repeat the original time, not use a new one" if names == ["produced_at_unix_ms"] else ""
    return f"{used}: {', '.join(names)} differ{hint}"


_lane = Lane()
# Whoever writes for all also prepares for all: one thread does in a row what many would do in turns, for longer.
_group: Group[Given, Result] = Group(_write_for_all)
