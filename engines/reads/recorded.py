"""Samples of finished transactions with their attempts, for rehearsals: the newest of each pipeline."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.models.fields.json import KT
from django.db.models.functions import Substr

from engines.core.errors import PolicyError
from engines.core.recorded import Record, Terms, Tried, record
from engines.core.states import CATEGORY_OF, STAGE_OF, AttemptOutcome, State
from engines.models import Attempt, PolicyVersion, TransactionRecord

AT_ONCE = 500
# As much of a message as tells which limit was reached.
BEGINNING = 60
COLUMNS = ("transaction_id", "delivery", "step", "number", "started_at", "duration", "outcome", "category")


class Sample(NamedTuple):
    """The newest finished transactions of a pipeline; None stands for one whose record is not whole."""

    records: list[Record | None]
    is_capped: bool
    oldest: datetime | None  # when the oldest of them was submitted


def sample(pipeline_id: int, *, since: datetime, most: int) -> Sample:
    """At most so many of the transactions that were submitted since then and have succeeded or failed."""
    rows: list[dict[str, Any]] = []
    for state in (State.SUCCEEDED, State.FAILED):
        # For the index t_list.
        ended = TransactionRecord.objects.filter(pipeline_id=pipeline_id, state=state.value, finished_at__isnull=False)
        newest = ended.filter(created_at__gte=since).order_by("-created_at", "id")
        said = newest.annotate(said=KT("error__message")) if state is State.FAILED else newest
        names = ("id", "uid", "created_at", "rescues", *(["said"] if state is State.FAILED else []))
        rows += [{**row, "is_failed": state is State.FAILED} for row in said.values(*names)[: most + 1]]
    rows.sort(key=itemgetter("created_at"), reverse=True)
    kept = rows[:most]
    records = [one for start in range(0, len(kept), AT_ONCE) for one in _records(kept[start : start + AT_ONCE])]
    return Sample(records, len(rows) > most, kept[-1]["created_at"] if kept else None)


def _records(rows: Sequence[dict[str, Any]]) -> Iterator[Record | None]:
    made = Attempt.objects.filter(transaction_id__in=[row["id"] for row in rows])
    ordered = made.order_by("transaction_id", "delivery", "step", "number")
    tried = list(ordered.values_list(*COLUMNS, "policy_version", Substr("message", 1, BEGINNING)))
    terms = _terms({row[len(COLUMNS)] for row in tried})
    attempts = {key: [_tried(one, terms) for one in group] for key, group in groupby(tried, itemgetter(0))}
    for row in rows:
        whole = [one for one in attempts.get(row["id"], []) if one is not None]
        # One that was cut, or whose policy is not known, is missing, and so is the whole.
        if row["rescues"] or len(whole) != len(attempts.get(row["id"], [])):
            yield None
        else:
            yield record(row["uid"], is_failed=row["is_failed"], message=row.get("said") or "", attempts=whole)


def _terms(versions: Collection[int | None]) -> dict[int | None, Terms]:
    found: dict[int | None, Terms] = {}
    for version in PolicyVersion.objects.select_related("policy").filter(pk__in=[pk for pk in versions if pk]):
        try:
            found[version.pk] = Terms.of(version.policy.value_class.from_stored(version.body))
        except PolicyError:  # of a newer release
            continue
    return found


def _tried(row: tuple[Any, ...], terms: dict[int | None, Terms]) -> Tried | None:
    _, delivery, step, number, started_at, duration, outcome, category, version, message = row
    if outcome == AttemptOutcome.CUT or version not in terms:
        return None
    return Tried(
        delivery,
        STAGE_OF[step],
        number,
        started_at.timestamp(),
        duration,
        None if outcome == AttemptOutcome.SUCCESS else CATEGORY_OF[category],
        terms[version],
        message or "",
    )
