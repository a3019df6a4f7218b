"""Which index serves which list: of transactions, dead letters and their groups, each in an index's own order."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTransform
from django.utils import timezone

from engines.core import redaction
from engines.core.errors import EngineError, ExceptionType
from engines.core.states import CATEGORIES, GroupState, LetterState, State
from engines.models import DeadLetter, DeadLetterGroup, Pipeline, TransactionRecord
from ergon_site.access.core import json_text
from ergon_site.access.keyset import Lane

LOOKED_INTO = 10_000
DEEPEST_PATH = 20
AGE = re.compile(r"(under|over)-(\d{1,4})([mhd])")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
IN_PAYLOAD = re.compile(r"payload\.([^:]+):(.*)", re.DOTALL)
BACKWARDS = re.compile(r"\s*-\s*\d+\s*")
HEAVY = ("payload", "result", "metadata", "trace_context", "payload_changes")
NEWEST = ("-id",)
# Halves the numbers between the first and the last row until one is left: some twenty rows are looked at, not all.
MIDDLE = "(SELECT t.created_at FROM engines_transactionrecord t WHERE t.id >= (low + high) / 2 ORDER BY t.id LIMIT 1)"
HALVING = f"""
WITH RECURSIVE halves (low, high) AS (
  SELECT (SELECT min(id) FROM engines_transactionrecord), (SELECT max(id) FROM engines_transactionrecord) + 1
  UNION ALL
  SELECT CASE WHEN {MIDDLE} < %s THEN (low + high) / 2 + 1 ELSE low END,
         CASE WHEN {MIDDLE} < %s THEN high ELSE (low + high) / 2 END
  FROM halves WHERE low < high)
SELECT max(low) FROM halves
"""  # noqa: S608 (built from constants)


class ListingError(EngineError):
    """A list that cannot be as asked."""

    code = "invalid_filter"


class Age(NamedTuple):
    """Made after a time, or before it."""

    is_under: bool
    moment: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a list of transactions is asked for; what is not given does not matter."""

    state: State | None = None
    pipeline: Pipeline | None = None
    category: ExceptionType | None = None
    age: Age | None = None
    worker: int | None = None
    correlation: str = ""
    text: str = ""


def wanted(asked: Mapping[str, str], pipelines: Iterable[Pipeline]) -> Wanted:
    """The words of an address as values; a word that means nothing is refused."""
    by_name = {pipeline.name: pipeline for pipeline in pipelines}
    try:
        return Wanted(
            state=State[asked["state"].upper()] if "state" in asked else None,
            pipeline=by_name[asked["pipeline"]] if "pipeline" in asked else None,
            category=ExceptionType(asked["category"]) if "category" in asked else None,
            age=_age(asked["age"]) if "age" in asked else None,
            worker=int(asked["worker"]) if "worker" in asked else None,
            correlation=asked.get("correlation", ""),
            text=asked.get("q", "").strip(),
        )
    except (KeyError, ValueError) as error:
        msg = f"no list is filtered so: {error}"
        raise ListingError(msg) from None


def transactions(asked: Wanted, pipelines: Iterable[Pipeline]) -> Lane:
    """The lane of a list of transactions. Payloads and results stay where they are."""
    conditions = _conditions(asked)
    order, served = _index(asked, conditions)
    asked_for = set(conditions)
    rows = TransactionRecord.objects.defer(*HEAVY)
    for name in served:
        rows = rows.filter(conditions.pop(name, Q()))
    if payload := IN_PAYLOAD.fullmatch(asked.text):
        return _look_into(payload, rows, order, conditions, pipelines)
    is_counted = not asked_for or (asked_for <= {"state", "pipeline"} and "state" in asked_for)
    return Lane(rows=rows, order=order, rest=_all(conditions.values()), is_counted=is_counted)


def _conditions(asked: Wanted) -> dict[str, Q]:
    found: dict[str, Q] = {}
    if (state := _state(asked)) is not None:
        # What its index is for is said as well: a plan has no other way to know.
        kind = {State.PENDING: Q(), State.RUNNING: Q(lease_expires_at__isnull=False)}
        found["state"] = Q(state=state.value) & kind.get(state, Q(finished_at__isnull=False))
    if asked.pipeline is not None:
        # Whatever its state: said as three kinds, each of which has an index.
        anyhow = Q(state=State.PENDING.value) | Q(lease_expires_at__isnull=False) | Q(finished_at__isnull=False)
        found["pipeline"] = Q(pipeline_id=asked.pipeline.pk) & (Q() if "state" in found else anyhow)
    if asked.category is not None:
        found["category"] = Q(category=CATEGORIES[asked.category])
    if asked.age is not None:
        found["age"] = _made(asked.age, by_time=_is_of_ended_list(asked))
    if asked.worker is not None:
        found["worker"] = Q(lease_owner=asked.worker)
    if asked.correlation:
        found["correlation"] = Q(correlation_id=asked.correlation)
    if asked.text and not IN_PAYLOAD.fullmatch(asked.text):
        found["text"] = Q(uid__startswith=asked.text) | Q(correlation_id=asked.text)
    return found


def _is_of_ended_list(asked: Wanted) -> bool:
    """What has ended in one pipeline is in the index by the time of its making; everything else by its number."""
    state = _state(asked)
    return state is not None and state.is_final and asked.pipeline is not None


def _made(age: Age, *, by_time: bool) -> Q:
    bound = ("created_at", age.moment) if by_time else ("pk", _first_since(age.moment))
    return Q(**{f"{bound[0]}__{'gte' if age.is_under else 'lt'}": bound[1]})


def _first_since(moment: datetime) -> int:
    """The number of the first one made since then: rows are numbered in the order of their making."""
    since = connection.ops.adapt_datetimefield_value(moment)
    with connection.cursor() as cursor:
        cursor.execute(HALVING, [since, since])
        return cursor.fetchone()[0] or 0


def _state(asked: Wanted) -> State | None:
    """A worker holds only what runs, and only what failed has a category."""
    if asked.state is None and asked.worker is not None:
        return State.RUNNING
    return State.FAILED if asked.state is None and asked.category is not None else asked.state


def _index(asked: Wanted, conditions: Mapping[str, Q]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The order of the index that fits best, and which conditions it serves."""
    for name in ("text", "correlation"):
        if name in conditions:
            return NEWEST, (name,)
    match state := _state(asked):
        case State.PENDING if asked.pipeline is not None:
            return ("-priority", "available_at", "id"), ("state", "pipeline")
        case State.PENDING:
            return ("pipeline_id", "-priority", "available_at", "id"), ("state",)
        case State.RUNNING:
            return ("lease_expires_at", "id"), ("state",)
        case _ if _is_of_ended_list(asked):
            return ("-created_at", "id"), ("state", "pipeline", "age")
        case State.FAILED | State.CANCELLED:
            return NEWEST, ("state", "age")
    return NEWEST, ("age",) if state is not None else ("pipeline", "age")


def _look_into(
    payload: re.Match[str],
    rows: QuerySet[TransactionRecord],
    order: tuple[str, ...],
    conditions: Mapping[str, Q],
    pipelines: Iterable[Pipeline],
) -> Lane:
    """Those whose payload holds a value at a path; never where the pipeline hides what lies there."""
    path, value = payload[1].strip(), payload[2].strip()
    parts = path.split(".")
    if len(parts) > DEEPEST_PATH or any(BACKWARDS.fullmatch(part) for part in parts):
        msg = f"a path into a payload has at most {DEEPEST_PATH} parts, and places in lists count from 0"
        raise ListingError(msg)
    hidden = [pipeline.pk for pipeline in pipelines if redaction.covers(pipeline.redacted, path)]
    place: Any = "payload"
    for part in parts:
        place = KeyTransform(part, place)
    found = _any(Q(found=candidate) for candidate in _candidates(value))
    rest = found & ~Q(pipeline_id__in=hidden) & _all(conditions.values())
    return Lane(rows=rows.alias(found=place), order=order, rest=rest, window=LOOKED_INTO)


def _candidates(value: str) -> list[Any]:
    """`42` may be a number or a text; the address does not say which."""
    try:
        parsed = json_text.parse(value.encode())
    except json_text.MalformedJSONError:
        return [value]
    return [value, parsed] if isinstance(parsed, int | float | str) else [value]


def letters(asked: Mapping[str, str]) -> Lane:
    """The lane of a list of dead letters: there is an index for each filter, and the narrowest one leads."""
    _check(asked, {"state": LetterState, "category": ExceptionType})
    text = asked.get("q", "").strip()
    conditions = {
        **({"text": Q(uid__startswith=text)} if text else {}),
        **({"group": Q(group_id=_number(asked["group"]))} if "group" in asked else {}),
        **{name: Q(**{name: asked[name]}) for name in ("source", "state", "category") if name in asked},
    }
    rows = DeadLetter.objects.defer("payload", "traceback", "details")
    return _led(rows, conditions, NEWEST)


def groups(asked: Mapping[str, str]) -> Lane:
    """The lane of the groups of dead letters, those seen last first."""
    _check(asked, {"state": GroupState, "category": ExceptionType})
    conditions = {name: Q(**{name: asked[name]}) for name in ("source", "state") if name in asked}
    text, others = asked.get("q", "").strip(), Q()
    if text:
        others = Q(error_type__icontains=text) | Q(message__icontains=text) | Q(source__icontains=text)
    if "category" in asked:
        others &= Q(category=asked["category"])
    lane = _led(DeadLetterGroup.objects.all(), conditions, ("-last_seen_at", "-id"))
    return replace(lane, rest=lane.rest & others)


def _led(rows: QuerySet[Any], conditions: dict[str, Q], order: tuple[str, ...]) -> Lane:
    """A lane whose first condition is an index's own."""
    given = list(conditions.values())
    return Lane(rows=rows.filter(*given[:1]), order=order, rest=_all(given[1:]), is_counted="text" not in conditions)


def _check(asked: Mapping[str, str], kinds: Mapping[str, Any]) -> None:
    for name, kind in kinds.items():
        if name in asked and asked[name] not in set(kind):
            msg = f"no list is filtered so: {name} {asked[name]!r}"
            raise ListingError(msg)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _age(text: str) -> Age:
    found = AGE.fullmatch(text)
    if found is None:
        msg = f"an age looks like under-1h or over-7d, not {text!r}"
        raise ValueError(msg)
    way, count, unit = found.groups()
    return Age(way == "under", timezone.now() - timedelta(**{UNITS[unit]: int(count)}))


def _all(conditions: Iterable[Q]) -> Q:
    found = Q()
    for condition in conditions:
        found &= condition
    return found


def _any(conditions: Iterable[Q]) -> Q:
    found = Q()
    for condition in conditions:
        found |= condition
    return found
