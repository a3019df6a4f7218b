"""VERBS: submit, check, submit_many, submit_together. A thousand in a statement; repeats are recognised."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

import orjson
import uuid_utils
from django.db import transaction
from django.db.models import Q

from engines import telemetry
from engines.conf import settings
from engines.core.states import State
from engines.models import Pipeline, TransactionRecord
from engines.transactions import payloads
from engines.transactions.errors import (
    IdTakenError,
    PayloadLimitError,
    PipelineUnknownError,
    RefusedError,
    SubmissionError,
)
from engines.transactions.statements import statements
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database import standbys
from ergon_site.access.database.calls import retry_conflicts, time_limit

ROUND_TRIP = 1000
LONGEST_TEXT = 200
PRIORITIES = range(-(2**31), 2**31)
FIRST_TIME = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LAST_TIME = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


class Draft(NamedTuple):
    """A transaction as it is submitted."""

    payload: Any
    id: str | None = None
    priority: int | None = None
    available_at: datetime | None = None
    dedupe_key: str | None = None
    correlation_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    parent_id: str | None = None
    source: str | None = None
    trace_context: Mapping[str, str] | None = None
    replay_of: int | None = None
    payload_changes: list[dict[str, Any]] | None = None


class Submitted(NamedTuple):
    """A transaction that is kept; not new if its id or dedupe key was there before."""

    id: str
    state: str
    is_new: bool


def submit(pipeline: str, payload: Any, **fields: Any) -> Submitted:
    """Keep one transaction for a pipeline: `id`, `priority`, `available_at`, `dedupe_key`, `correlation_id`, ….

    Inside the caller's database transaction it is kept or forgotten with it.
    """
    return submit_many(pipeline, [Draft(payload, **fields)])[0]


def check(drafts: Iterable[Draft]) -> None:
    """Refuse what `submit_many` would refuse because of what the drafts say; nothing is written."""
    for index, draft in enumerate(drafts):
        given = _given(draft)
        _row(draft.payload, given, _checked(given, index), None, index)


def submit_many(pipeline: str, drafts: Iterable[Draft | Mapping[str, Any]]) -> list[Submitted]:
    """Keep many, a thousand with each statement; the answers are in the order of the drafts."""
    if not is_storable(pipeline):
        raise PipelineUnknownError(pipeline)
    source, trace = iter(drafts), telemetry.current_trace()
    submitted: list[Submitted] = []
    batch = _batch(_taken(source), 0, trace)
    while batch.ids:
        fault, following = None, []
        if len(batch.ids) == ROUND_TRIP:
            try:
                following = _taken(source)
            except Exception as error:  # noqa: BLE001 (raised once what came before is kept)
                fault = error
        encode_following = cache(partial(_batch, following, len(submitted) + len(batch.ids), trace))
        submitted += _submit_batch(pipeline, batch, meanwhile=encode_following if following else None)
        if fault is not None:
            raise fault
        batch = encode_following()
    return submitted


def submit_together(entries: Sequence[tuple[str, Draft]]) -> list[Submitted]:
    """Keep transactions of several pipelines, all or none; the answers are in the order of the entries."""
    with time_limit(settings().database_timeout):
        return _submit_together(entries)


@retry_conflicts
@transaction.atomic
def _submit_together(entries: Sequence[tuple[str, Draft]]) -> list[Submitted]:
    places: dict[str, list[int]] = {}
    for index, (pipeline, _) in enumerate(entries):
        places.setdefault(pipeline, []).append(index)
    submitted: dict[int, Submitted] = {}
    # In one order everywhere, so that no two wait for each other.
    for pipeline, mine in sorted(places.items()):
        try:
            kept = submit_many(pipeline, [entries[index][1] for index in mine])
        except RefusedError as error:
            error.item = mine[error.index]
            raise
        submitted.update(zip(mine, kept, strict=True))
    return [submitted[index] for index in range(len(entries))]


_NEW = State.PENDING.word
_GIVEN = Draft._fields[1:]
_NOTHING = (None,) * len(_GIVEN)
_TEXTS = frozenset({"id", "dedupe_key", "correlation_id", "parent_id", "source"})
_ELSEWHERE = frozenset({"metadata", "id", "trace_context"})


class Batch(NamedTuple):
    """Drafts as their statement takes them. Those before them in the call are `offset`."""

    drafts: list[Draft]
    offset: int
    ids: list[str]
    document: str
    is_plain: bool


def _taken(source: Iterator[Draft | Mapping[str, Any]]) -> list[Draft]:
    return [item if isinstance(item, Draft) else Draft(**item) for item in islice(source, ROUND_TRIP)]


def _batch(drafts: list[Draft], offset: int, trace: dict[str, str] | None) -> Batch:
    ids, rows = [], []
    is_plain = trace is None
    for index, draft in enumerate(drafts, offset):
        given = _given(draft)
        is_plain = is_plain and not given
        uid = _checked(given, index) if given else str(uuid_utils.uuid7())
        ids.append(uid)
        rows.append(_row(draft.payload, given, uid, trace, index))
    if not is_plain:
        # In one order everywhere, so that two processes with the same ids or keys do not wait for each other.
        keys = [draft.dedupe_key or "" for draft in drafts]
        places = [(key, "" if key else uid) for key, uid in zip(keys, ids, strict=True)]
        rows = [rows[place] for place in sorted(range(len(rows)), key=places.__getitem__)]
    return Batch(drafts, offset, ids, f"[{','.join(rows)}]", is_plain)


@retry_conflicts
def _submit_batch(pipeline: str, batch: Batch, meanwhile: Callable[[], Any] | None) -> list[Submitted]:
    """All of a batch or none; a single one is one statement anyway, and spared the transaction around it."""
    with time_limit(settings().database_timeout):
        if len(batch.ids) == 1:
            return _submit(pipeline, batch, meanwhile)
        with transaction.atomic():
            return _submit(pipeline, batch, meanwhile)


def _submit(pipeline: str, batch: Batch, meanwhile: Callable[[], Any] | None) -> list[Submitted]:
    count, is_plain = len(batch.ids), batch.is_plain
    new = statements().insert(pipeline, batch.document, count, is_plain=is_plain, meanwhile=meanwhile)
    if new is None:
        return [Submitted(uid, _NEW, is_new=True) for uid in batch.ids]
    submitted = list(_with_known(pipeline, batch, new))
    if not new:
        standbys.wait_as_writer()
    return submitted


def _given(draft: Draft) -> dict[str, Any]:
    """The fields of a draft besides its payload."""
    values = draft[1:]
    if values == _NOTHING:
        return {}
    return {name: value for name, value in zip(_GIVEN, values, strict=True) if value is not None}


def _checked(given: dict[str, Any], index: int) -> str:
    """The draft's id, or a new one that grows with time; a field out of bounds is refused by its name."""
    for name, value in given.items():
        if fault := _fault(name, value):
            msg = f"{name} {fault}"
            raise SubmissionError(msg, name, index)
    return given.get("id") or str(uuid_utils.uuid7())


def _fault(name: str, value: Any) -> str:
    if name in _TEXTS:
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
            return f"must be a text of 1 to {LONGEST_TEXT} characters"
        if not is_storable(value):
            return "must be a text without U+0000 and halves of surrogate pairs, which no database takes"
    elif name == "priority" and (type(value) is not int or value not in PRIORITIES):
        return f"must be a whole number, not {value!r}"
    elif name == "metadata" and not isinstance(value, Mapping):
        return "must be an object"
    elif name == "available_at":
        if value.utcoffset() is None:
            return "must have a time zone"
        # A database could keep others, and nobody could read them again in every time zone.
        return "" if FIRST_TIME <= value <= LAST_TIME else "is beyond the calendar"
    return ""


def _row(payload: Any, given: dict[str, Any], uid: str, trace: dict[str, str] | None, index: int) -> str:
    """The draft as an element of the statement's JSON document."""
    text = _encoded("payload", payload, index)
    if not given and trace is None:
        return f'{{"payload":{text},"uid":"{uid}"}}'
    metadata = _encoded("metadata", dict(given["metadata"]), index) if "metadata" in given else "{}"
    plain = {name: given[name] for name in given if name not in _ELSEWHERE}
    plain["uid"] = uid
    context = given.get("trace_context") or trace
    if context:
        plain["trace_context"] = orjson.Fragment(_encoded("trace_context", dict(context), index))
    return f'{{"payload":{text},"metadata":{metadata},{orjson.dumps(plain).decode()[1:]}'


def _encoded(name: str, value: Any, index: int) -> str:
    try:
        return payloads.encode(value, limit=settings().payload_limit, what=name)
    except payloads.PayloadTooLargeError as error:
        raise PayloadLimitError(str(error), name, index) from None
    except payloads.PayloadError as error:
        raise SubmissionError(str(error), name, index) from None


def _with_known(pipeline: str, batch: Batch, new: set[str]) -> Iterator[Submitted]:
    """The new transactions, and those that existed already."""
    drafts, offset, ids, *_ = batch
    found = Pipeline.objects.filter(name=pipeline).first()
    if found is None:
        raise PipelineUnknownError(pipeline)
    keys = [draft.dedupe_key for draft in drafts if draft.dedupe_key is not None]
    known = TransactionRecord.objects.filter(Q(uid__in=ids) | Q(pipeline=found, dedupe_key__in=keys))
    rows = list(known.values_list("uid", "dedupe_key", "state", "pipeline_id", "pipeline__name"))
    by_id = {row[0]: row for row in rows}
    by_key = {row[1]: row for row in rows if row[3] == found.pk and row[1] is not None}
    seen: set[str] = set()
    for index, (draft, uid) in enumerate(zip(drafts, ids, strict=True), offset):
        row = by_id.get(uid) or by_key.get(draft.dedupe_key or "")
        if row is None:
            msg = f"the transaction {uid!r} was neither kept nor found"
            raise SubmissionError(msg, "id", index)
        if row[3] != found.pk:
            raise IdTakenError(uid, row[4], index)
        is_new = uid in new and uid not in seen
        seen.add(uid)
        yield Submitted(row[0], State(row[2]).word, is_new=is_new)
