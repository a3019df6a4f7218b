"""Lists of transactions, by filters, by the start of an id, and by what is in payloads."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from django.db.models import Q
from django.db.models.fields.json import KeyTransform

from engines.core import redaction
from engines.core.states import CATEGORIES, State
from engines.models import Pipeline, TransactionRecord
from engines.reads.filters import INDEXED, ListingError, Wanted, beginning, first_since, in_state
from ergon_site.access.core import json_text
from ergon_site.access.keyset import KeysetQuery

LOOKED_INTO = 10_000
DEEPEST_PATH = 20
IN_PAYLOAD = re.compile(r"payload\.([^:]+):(.*)", re.DOTALL)
BACKWARDS = re.compile(r"\s*-\s*\d+\s*")
HEAVY = ("payload", "result", "metadata", "trace_context", "payload_changes")
NEWEST = ("-id",)


def list_transactions(asked: Wanted, pipelines: Iterable[Pipeline]) -> KeysetQuery:
    """The keyset query of transactions, without payloads and results."""
    conditions, rows, note = _conditions(asked), TransactionRecord.objects.defer(*HEAVY), ""
    payload = IN_PAYLOAD.fullmatch(asked.text)
    if asked.text and not payload:
        keys, note = beginning(TransactionRecord, asked.text)
        conditions["text"] = Q(pk__in=keys) | Q(correlation_id=asked.text)
    order, served = _index(asked, conditions)
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


def _conditions(asked: Wanted) -> dict[str, Q]:
    found: dict[str, Q] = {}
    if (state := asked.kind) is not None:
        found["state"] = in_state(state)
    if asked.pipeline is not None:
        found["pipeline"] = Q(pipeline_id=asked.pipeline.pk) & (Q() if "state" in found else INDEXED)
    if asked.category is not None:
        found["category"] = Q(category=CATEGORIES[asked.category])
    if asked.age is not None:
        lookup, moment = asked.age
        is_by_time = asked.is_of_ended_in_one_pipeline
        column, bound = ("created_at", moment) if is_by_time else ("pk", first_since(moment))
        found["age"] = Q(**{f"{column}__{lookup}": bound})
    if asked.ended is not None:
        lookup, moment = asked.ended
        found["ended"] = Q(**{f"finished_at__{lookup}": moment})
    if asked.worker is not None:
        found["worker"] = Q(lease_owner=asked.worker)
    if asked.correlation:
        found["correlation"] = Q(correlation_id=asked.correlation)
    return found


def _index(asked: Wanted, conditions: Mapping[str, Q]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The order of the index that fits best, and which conditions it serves."""
    for name in ("text", "correlation"):
        if name in conditions:
            return NEWEST, (name,)
    match state := asked.kind:
        case State.PENDING if asked.pipeline is not None:
            return ("-priority", "available_at", "id"), ("state", "pipeline")
        case State.PENDING:
            return ("pipeline_id", "-priority", "available_at", "id"), ("state",)
        case State.RUNNING:
            return ("lease_expires_at", "id"), ("state",)
        case _ if asked.is_of_ended_in_one_pipeline:
            return ("-created_at", "id"), ("state", "pipeline", "age")
        case State.FAILED | State.CANCELLED:
            return NEWEST, ("state", "age")
    return NEWEST, ("age",) if state is not None else ("pipeline", "age")
