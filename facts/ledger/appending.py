"""VERBS: append, append_many. Offsets come from a counter that is locked until the commit, so they have no gaps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import orjson
from django.db import connection, transaction

from ergon_site.access.database.retrying import retry_conflicts
from facts import telemetry
from facts.core.errors import BufferFullError, ConflictingDuplicateError, FactError
from facts.ledger import boundaries, postgresql, references, remembering
from facts.ledger.connections import Lane, Own
from facts.ledger.entries import Entry, prepare
from facts.ledger.group_commit import Group
from facts.models import Boundary, Fact


class Preparing:
    """Drafts on their way into a buffer."""

    def __init__(self, drafts: Sequence[Mapping[str, Any] | Entry]) -> None:
        self._prepared: list[Entry | FactError] = []
        self._drafts = iter(drafts)

    def stream(self) -> Iterator[Entry]:
        """Entries, each prepared when it is asked for."""
        for draft in self._drafts:
            try:
                entry = draft if isinstance(draft, Entry) else prepare(draft)
            except FactError as error:
                self._prepared.append(error)
                continue
            self._prepared.append(entry)
            yield entry

    def entries(self) -> list[Entry]:
        """All of them, those of the stream included."""
        for _ in self.stream():
            pass
        return [one for one in self._prepared if isinstance(one, Entry)]

    def results(self, written: Sequence[Any]) -> list[Any]:
        """The results of the entries, and between them the refusals, in the order of the drafts."""
        outcomes = iter(written)
        return [next(outcomes) if isinstance(one, Entry) else one for one in self._prepared]


ROUND_TRIP = 1000


class Appended(NamedTuple):
    """The offset of a fact in the log of its boundary."""

    offset: int
    message_id: str
    is_duplicate: bool


Result: TypeAlias = Appended | FactError


def append(draft: Mapping[str, Any] | Entry) -> Appended:
    """Keep a fact. It is confirmed by returning; inside the caller's transaction, by that one's commit."""
    with telemetry.Appending():
        result = _append_few([draft])[0] if _own.connection.in_atomic_block else _group.put(draft)
        if isinstance(result, FactError):
            raise result
        if result.is_duplicate:
            telemetry.duplicates.add(1)
        return result


def release_connection() -> None:
    """Close the group's own connection; it opens again when it is needed."""
    _lane.close()


def append_many(drafts: Iterable[Mapping[str, Any] | Entry]) -> list[Result]:
    """Keep many, each on its own: for each what `append` would have returned or raised, in their order."""
    results: list[Result] = []
    given = iter(drafts)
    while some := list(islice(given, ROUND_TRIP)):
        with telemetry.appending_many(len(some)) as counted:
            results += counted(_append_some(some))
    return results


def _append_few(drafts: Sequence[Mapping[str, Any] | Entry], lane: Lane | None = None) -> list[Result]:
    preparing = Preparing(drafts)
    return preparing.results(_write(preparing.entries(), lane))


def _append_some(drafts: Sequence[Mapping[str, Any] | Entry]) -> list[Result]:
    preparing = Preparing(drafts)
    first = None
    if connection.vendor == "postgresql" and len(drafts) >= postgresql.COPIED_FROM:
        first = postgresql.copy(connection, preparing.stream())
    entries = preparing.entries()
    return preparing.results(_write(entries) if first is None else _new(entries, first))


def _write(entries: Sequence[Entry], lane: Lane | None = None) -> list[Result]:
    """Write them, boundary by boundary, each in a transaction of its own."""
    zones = {entry[:2] for entry in entries}
    if len(zones) == 1:
        return list(_write_to_one(entries, lane))
    if connection.in_atomic_block:
        boundaries.hold(zones)
    results: list[Any] = [None] * len(entries)
    for places in _by_boundary(entries):
        mine = [entries[place] for place in places]
        for place, result in zip(places, _write_to_one(mine, lane), strict=True):
            results[place] = result
    return results


def _by_boundary(entries: Sequence[Entry]) -> Iterable[Sequence[int]]:
    places: dict[tuple[str, str], list[int]] = {}
    for place, entry in enumerate(entries):
        places.setdefault(entry.zones, []).append(place)
    return places.values()


def _write_to_one(entries: Sequence[Entry], lane: Lane | None) -> Sequence[Result]:
    if connection.vendor == "postgresql" and not any(entry.references for entry in entries):
        written = _write_new(entries, lane)
        if written is not None:
            return written
    boundary = boundaries.seek(*entries[0].zones)
    if boundary is None or boundary.is_remote:
        refusal = boundaries.missing(*entries[0].zones) if boundary is None else boundaries.pulled(boundary)
        return [refusal] * len(entries)
    if boundary.is_retired:
        return [boundaries.retired(boundary)] * len(entries)
    return _write_known(boundary.pk, entries)


def _write_new(entries: Sequence[Entry], lane: Lane | None) -> list[Result] | None:
    """At once, if all are new and there is room; None if not."""
    if lane is None:
        first = postgresql.append(connection, entries)
    else:
        first = lane.carry_out(lambda wrapper: postgresql.append(wrapper, entries))
    return None if first is None else _new(entries, first)


def _new(entries: Sequence[Entry], first: int) -> list[Result]:
    return [Appended(offset, entry.message_id, False) for offset, entry in enumerate(entries, first)]  # noqa: FBT003


@retry_conflicts
@transaction.atomic
def _write_known(boundary_id: int, entries: Sequence[Entry]) -> list[Result]:
    """Write one by one, under the lock: duplicates get their existing offset, and excess is refused."""
    boundary = Boundary.objects.select_for_update().get(pk=boundary_id)
    if boundary.removed_offset is not None:
        postgresql.note_truncated(entries[0].zones)
    ids = {entry.message_id for entry in entries}
    known_rows = Fact.objects.filter(boundary_id=boundary_id, message_id__in=ids).values_list(
        "message_id", "offset", "digest", "content"
    )
    known: dict[str, tuple[int, str, str | None]] = {
        **{message_id: (*place, None) for message_id, place in remembering.known(boundary, ids).items()},
        **{message_id: (offset, digest, content) for message_id, offset, digest, content in known_rows},
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
    Fact.objects.bulk_create(Fact(boundary_id=boundary_id, offset=offset, **entry.fields) for offset, entry in new)
    references.keep(boundary_id, new, artifacts)
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
        name = boundaries.arrow(*entry.zones)
        msg = f"the store buffer of {name} has reached its ceiling: new facts are refused, stored facts are kept"
        return BufferFullError(msg)
    return Appended(boundary.next_offset, entry.message_id, is_duplicate=False)


def _difference(entry: Entry, content: str | None) -> str:
    if content is None:
        return f"the message id {entry.message_id!r} was already used with different content, since truncated"
    before, now = orjson.loads(content), orjson.loads(entry.text)
    names = sorted(_differing(before, now))
    msg = f"the message id {entry.message_id!r} was already used with different content: {', '.join(names)} differ"
    if names == ["produced_at_unix_ms"]:
        msg += "; a retry must repeat the original time, not use a new one"
    return msg


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for part in ("envelope", "fact"):
        for name in {*before[part], *now[part]}:
            # As they are written: true and 1 are the same to Python, and other contents.
            if orjson.dumps(before[part].get(name)) != orjson.dumps(now[part].get(name)):
                yield name


_lane, _own = Lane(), Own()
# Whoever writes for all also prepares for all: one thread does in a row what many would do in turns, for longer.
_group: Group[Mapping[str, Any] | Entry, Result] = Group(lambda drafts: _append_few(drafts, _lane))
