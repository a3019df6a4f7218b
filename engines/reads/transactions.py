"""Lists of transactions, by filters, by the start of an id, and by what is in payloads."""

import re
from collections.abc import Collection, Mapping, Sequence
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
from engines.reads.filters import INDEXED, ListingError, age, beginning, first_since, in_state
from ergon_site.access.core import json_text
from ergon_site.access.keyset import KeysetQuery

LOOKED_INTO = 10_000
SMALL = 16 * 1024
DEEPEST_PATH = 20
IN_PAYLOAD = re.compile(r"payload\.([^:]+):(.*)", re.DOTALL)
BACKWARDS = re.compile(r"\s*-\s*\d+\s*")
HEAVY = ("payload", "result", "metadata", "trace_context", "payload_changes")
NEWEST = ("-id",)


def list_transactions(asked: Mapping[str, str], pipelines: Collection[Pipeline]) -> KeysetQuery:
    """The keyset query of transactions, without payloads and results; a word that means nothing is refused."""
    try:
        # A worker holds only what runs, and only what failed has a category.
        implied = State.RUNNING if "worker" in asked else State.FAILED if "category" in asked else None
        state = State[asked["state"].upper()] if "state" in asked else implied
        conditions = _conditions(asked, state, pipelines)
    except (KeyError, ValueError) as error:
        msg = f"unknown filter: {error}"
        raise ListingError(msg) from None
    rows, note, text = TransactionRecord.objects.defer(*HEAVY), "", asked.get("q", "").strip()
    payload = IN_PAYLOAD.fullmatch(text)
    if text and not payload:
        keys, note = beginning(TransactionRecord, text)
        conditions["text"] = Q(pk__in=keys) | Q(correlation_id=text)
    order, served = _index(state, conditions)
    asked_for = set(conditions)
    for name in served:
        rows = rows.filter(conditions.pop(name, Q()))
    rest = Q(*conditions.values())
    if not payload:
        is_counted = not asked_for or (asked_for <= {"state", "pipeline"} and "state" in asked_for)
        return KeysetQuery(rows=rows, order=order, rest=rest, is_counted=is_counted, note=note)
    # Those whose payload holds a value at a path; never where the pipeline hides that path.
    path, value = payload[1].strip(), payload[2].strip()
    parts = path.split(".")
    if len(parts) > DEEPEST_PATH or any(BACKWARDS.fullmatch(part) for part in parts):
        msg = f"a path into a payload has at most {DEEPEST_PATH} parts, and places in lists count from 0"
        raise ListingError(msg)
    hidden = [pipeline.pk for pipeline in pipelines if redaction.covers(pipeline.redacted, path)]
    place: Any = "payload"
    for part in parts:
        place = KeyTransform(part, place)
    # `42` may be a number or a text; the address does not say which.
    found = Q(found=value)
    with suppress(json_text.MalformedJSONError):
        if isinstance(parsed := json_text.parse(value.encode()), int | float | str):
            found |= Q(found=parsed)
    rest = found & ~Q(pipeline_id__in=hidden) & rest
    return KeysetQuery(rows=rows.alias(found=place), order=order, rest=rest, window=LOOKED_INTO)


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
    """The payload of the newest transaction of a pipeline that succeeded or failed; None if there is none."""
    newest: list[tuple[Any, Any]] = []
    for state in (State.SUCCEEDED, State.FAILED):
        # For the index t_list.
        ended = TransactionRecord.objects.filter(pipeline=pipeline, state=state.value, finished_at__isnull=False)
        newest += ended.order_by("-created_at", "id").values_list("created_at", "payload")[:1]
    return max(newest, key=itemgetter(0), default=(None, None))[1]


def _conditions(asked: Mapping[str, str], state: State | None, pipelines: Collection[Pipeline]) -> dict[str, Q]:
    found: dict[str, Q] = {}
    if state is not None:
        found["state"] = in_state(state)
    if "pipeline" in asked:
        keys = {pipeline.name: pipeline.pk for pipeline in pipelines}
        found["pipeline"] = Q(pipeline_id=keys[asked["pipeline"]]) & (INDEXED if state is None else Q())
    if "category" in asked:
        found["category"] = Q(category=CATEGORIES[ExceptionType(asked["category"])])
    if "age" in asked:
        lookup, moment = age(asked["age"])
        is_by_time = state is not None and state.is_final and "pipeline" in asked
        column, bound = ("created_at", moment) if is_by_time else ("pk", first_since(moment))
        found["age"] = Q(**{f"{column}__{lookup}": bound})
    if "ended" in asked:
        lookup, moment = age(asked["ended"])
        found["ended"] = Q(**{f"finished_at__{lookup}": moment})
    if "worker" in asked:
        found["worker"] = Q(lease_owner=int(asked["worker"]))
    if asked.get("correlation"):
        found["correlation"] = Q(correlation_id=asked["correlation"])
    return found


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
