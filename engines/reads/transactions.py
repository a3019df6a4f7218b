"""Lists of transactions, by filters, by the start of an id, by words of errors, and by what is in payloads."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.db.models import Func, IntegerField, Q
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce

from engines import workers
from engines.core import explanation, redaction, summary
from engines.core.errors import ExceptionType
from engines.core.states import CATEGORIES, State
from engines.models import Pipeline, TransactionRecord
from engines.reads.filters import CATEGORY_NAMES, INDEXED, STATES, ListingError, age, beginning, first_since, in_state
from ergon_site.access.core import json_text
from ergon_site.access.core.search_terms import MOST_WORDS, PAYLOAD, moment, parse
from ergon_site.access.core.texts import is_key
from ergon_site.access.database.clock import page_time
from ergon_site.access.keyset import WINDOW, KeysetQuery

LOOKED_INTO = 10_000
SMALL = 16 * 1024
SHOWN = 12
DEEPEST_PATH = 20
BACKWARDS = re.compile(r"\s*-\s*\d+\s*")
HEAVY = ("payload", "result", "metadata", "trace_context", "payload_changes")
NEWEST = ("-id",)


def list_transactions(asked: Mapping[str, str], pipelines: Collection[Pipeline]) -> KeysetQuery:
    """The keyset query of transactions, without payloads and results; a word that means nothing is refused.

    A text (`q`) is an id or its start or a correlation id or, where there is none, words of errors; and paths into
    payloads, which may also be asked for under their names.
    """
    search = parse(asked.get("q", ""), (PAYLOAD,))
    asked = {**asked, **search.filters}
    # A worker holds only what runs, and only what failed has a category and an error that people look for.
    implied = State.RUNNING if "worker" in asked else State.FAILED if {"category", "error"} & set(asked) else None
    state = State(STATES.index(_one_of(STATES, asked, "state"))) if "state" in asked else implied
    conditions = _conditions(asked, state, pipelines)
    rows, note, text = TransactionRecord.objects.defer(*HEAVY), "", search.text
    if text:
        keys, note = beginning(TransactionRecord, text)
        if keys or TransactionRecord.objects.filter(correlation_id=text).exists():
            conditions["text"] = Q(pk__in=keys) | Q(correlation_id=text)
        else:
            conditions["words"] = ~Q(state=State.SUCCEEDED.value) & in_errors(text.split())
            note = f"no such id: searched the errors of the newest {WINDOW:,}"
    order, served = _index(state, conditions)
    asked_for = set(conditions)
    for name in served:
        rows = rows.filter(conditions.pop(name, Q()))
    rest = Q(*conditions.values())
    paths = {name.removeprefix(PAYLOAD): asked[name] for name in asked if name.startswith(PAYLOAD)}
    if not paths:
        is_counted = not asked_for or (asked_for <= {"state", "pipeline"} and "state" in asked_for)
        return KeysetQuery(rows=rows, order=order, rest=rest, is_counted=is_counted, note=note)
    for number, (path, value) in enumerate(paths.items()):
        name = f"found_{number}"
        rows = rows.alias(**{name: _place(path)})
        rest &= _holds(name, value) & ~Q(pipeline_id__in=_hiding(path, pipelines))
    return KeysetQuery(rows=rows, order=order, rest=rest, window=LOOKED_INTO, note=note)


def in_errors(words: Sequence[str]) -> Q:
    """Those whose error contains each of these words in its type or its message."""
    found = Q()
    for word in words[:MOST_WORDS]:
        found &= Q(error__type__icontains=word) | Q(error__message__icontains=word)
    return found


def _place(path: str) -> Any:
    """The place in a payload at the end of a path."""
    parts = path.split(".")
    if len(parts) > DEEPEST_PATH or any(BACKWARDS.fullmatch(part) for part in parts):
        msg = f"a path into a payload has at most {DEEPEST_PATH} parts, and places in lists count from 0"
        raise ListingError(msg)
    place: Any = "payload"
    for part in parts:
        place = KeyTransform(part, place)
    return place


def _holds(name: str, value: str) -> Q:
    # `42` may be a number or a text; the address does not say which.
    found = Q(**{name: value})
    with suppress(json_text.MalformedJSONError):
        if isinstance(parsed := json_text.parse(value.encode()), int | float | str):
            found |= Q(**{name: parsed})
    return found


def _hiding(path: str, pipelines: Collection[Pipeline]) -> list[int]:
    """The pipelines that hide a path: nobody finds out what is there letter by letter."""
    return [pipeline.pk for pipeline in pipelines if redaction.covers(pipeline.redacted, path)]


def describe(rows: Sequence[Any], now: datetime) -> None:
    """Give the rows of one page what a list tells of them besides their columns.

    That is `summary` (fields of the payload; None if it is too large to be read for a list), `kind` (the state, or
    which kind of pending), and of pending ones `is_due_later` and `reason`.
    """
    payloads = _small_payloads([row.pk for row in rows])
    is_pending = any(row.state == State.PENDING for row in rows)
    served = {name for worker in workers.alive() for name in worker.pipelines} if is_pending else set()
    for row in rows:
        pipeline = row.pipeline
        row.summary, row.kind = None, row.word
        if row.pk in payloads:
            row.summary = summary.summarize(payloads[row.pk], pipeline.summary, pipeline.redacted)
        if row.state == State.PENDING:
            due_in = (row.available_at - now).total_seconds()
            facts = {
                "due_in": due_in,
                "error": row.error,
                "paused_by": pipeline.paused_by,
                "is_served": pipeline.name in served,
            }
            row.kind, row.reason = explanation.pending_word(due_in, row.error), explanation.pending_reason(facts)
            row.is_due_later = due_in > 0


def _small_payloads(keys: Collection[int]) -> dict[int, Any]:
    sized = TransactionRecord.objects.filter(pk__in=keys).alias(size=Coalesce(StoredSize("payload"), 0))
    return dict(sized.filter(size__lte=SMALL).values_list("pk", "payload"))


class StoredSize(Func):
    """The bytes that a column takes as it is stored; PostgreSQL knows them without reading the value."""

    function = "pg_column_size"
    output_field = IntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, function="LENGTH", **context)


def last_payload(pipeline: Pipeline) -> Any:
    """The payload of the newest transaction of a pipeline that succeeded or failed, or of one that waits, or None."""
    newest: list[tuple[Any, Any]] = []
    for state in (State.SUCCEEDED, State.FAILED):
        # For the index t_list.
        ended = TransactionRecord.objects.filter(pipeline=pipeline, state=state.value, finished_at__isnull=False)
        newest += ended.order_by("-created_at", "id").values_list("created_at", "payload")[:1]
    if newest:
        return max(newest, key=itemgetter(0))[1]
    waiting = TransactionRecord.objects.filter(pipeline=pipeline, state=State.PENDING.value).order_by()
    return next(iter(waiting.values_list("payload", flat=True)[:1]), None)


def _conditions(asked: Mapping[str, str], state: State | None, pipelines: Collection[Pipeline]) -> dict[str, Q]:
    found: dict[str, Q] = {}
    if state is not None:
        found["state"] = in_state(state)
    if "pipeline" in asked:
        keys = {pipeline.name: pipeline.pk for pipeline in pipelines}
        found["pipeline"] = Q(pipeline_id=keys[_one_of(keys, asked, "pipeline")]) & (INDEXED if state is None else Q())
    if "category" in asked:
        found["category"] = Q(category=CATEGORIES[ExceptionType(_one_of(CATEGORY_NAMES, asked, "category"))])
    try:
        made = [_created(*bound, state, asked) for bound in _bounds(asked)]
        if made:
            found["age"] = Q(*made)
        if "ended" in asked:
            lookup, ended_at = age(asked["ended"])
            found["ended"] = Q(**{f"finished_at__{lookup}": ended_at})
    except ValueError as error:
        raise ListingError(str(error)) from None
    if "worker" in asked:
        if not is_key(asked["worker"]):
            msg = "worker is the number of a worker"
            raise ListingError(msg, "worker")
        found["worker"] = Q(lease_owner=int(asked["worker"]))
    if asked.get("correlation"):
        found["correlation"] = Q(correlation_id=asked["correlation"])
    if "error" in asked:
        found["error"] = in_errors([asked["error"]])
    return found


def _one_of(words: Collection[str], asked: Mapping[str, str], name: str) -> str:
    """The word that is asked for; capitals make no difference where no other word is meant."""
    word = asked[name] if asked[name] in words else {one.lower(): one for one in words}.get(asked[name].lower())
    if word is None:
        known = list(words)
        more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
        msg = f"there is no {name} {asked[name]!r}; there are {', '.join(known[:SHOWN]) or 'none'}{more}"
        raise ListingError(msg, name)
    return word


def _bounds(asked: Mapping[str, str]) -> Iterator[tuple[str, datetime]]:
    """What is said of the time of submission: lookups and the times that they compare with."""
    if "age" in asked:
        yield age(asked["age"])
    for name, lookup in (("after", "gte"), ("before", "lt")):
        if name in asked:
            yield lookup, moment(asked[name], page_time())


def _created(lookup: str, at: datetime, state: State | None, asked: Mapping[str, str]) -> Q:
    is_by_time = state is not None and state.is_final and "pipeline" in asked
    column, bound = ("created_at", at) if is_by_time else ("pk", first_since(at))
    return Q(**{f"{column}__{lookup}": bound})


def _index(state: State | None, conditions: Mapping[str, Q]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The order of the index that fits best, and which conditions it serves."""
    for name in ("text", "correlation"):
        if name in conditions:
            return NEWEST, (name,)
    match state:
        case State.PENDING if "pipeline" in conditions:
            return ("-priority", "available_at", "id"), ("state", "pipeline")
        case State.PENDING:
            return ("pipeline_id", "-priority", "available_at", "id"), ("state",)
        case State.RUNNING:
            return ("lease_expires_at", "id"), ("state",)
        case None:
            return NEWEST, ("pipeline", "age")
        case _ if "pipeline" in conditions:
            return ("-created_at", "id"), ("state", "pipeline", "age")
        case State.FAILED | State.CANCELLED:
            return NEWEST, ("state", "age")
    return NEWEST, ("age",)
