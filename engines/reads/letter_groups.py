"""What the page of a dead-letter group tells of its members, of which it looks at few, however many there are."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.db.models import TextField
from django.db.models.functions import Cast, Length

from engines.core import redaction, variation
from engines.core.states import LetterState, State
from engines.core.variation import Variation
from engines.models import (
    BulkItem,
    BulkOperation,
    DeadLetter,
    DeadLetterGroup,
    Pipeline,
    PolicyVersion,
    TransactionRecord,
    Worker,
)

# The newest members that are looked at: their versions, and (of some) the payloads.
SAMPLED = 100
COMPARED = 20
LARGEST_COMPARED = 64 * 1024
DECISIONS = 200
OPERATIONS = 5
FOLLOWED = 2000
SHOWN = 5


class Sample(NamedTuple):
    """Payloads of the newest members: the newest of all, in what they differ, and how many were too large for that."""

    newest: Any
    redacted: list[str]
    letter: int
    variation: Variation
    too_large: int


class Affected(NamedTuple):
    """What the newest members ran under: each name with the number of members."""

    looked_at: int
    pipelines: list[tuple[str, int]]
    versions: list[tuple[str, int]]
    workers: list[tuple[str, int]]


class Outcomes(NamedTuple):
    """What became of replays."""

    succeeded: int = 0
    failed: int = 0
    running: int = 0
    unknown: int = 0


class Tried(NamedTuple):
    """Earlier decisions about members: in bulk, and one by one."""

    operations: list[tuple[BulkOperation, Outcomes]]
    replays: list[tuple[DeadLetter, str]]
    outcomes: Outcomes
    discarded: int
    is_capped: bool


def newest_traceback(group: DeadLetterGroup) -> DeadLetter | None:
    """The newest member that has a traceback, among the newest ones."""
    newest = group.letters.order_by("-pk").values_list("pk", flat=True)[:SHOWN]
    found = DeadLetter.objects.filter(pk__in=list(newest)).exclude(traceback="")
    return found.defer("payload", "details").order_by("-pk").first()


def sample_of(group: DeadLetterGroup) -> Sample | None:
    """The payloads of the newest members, without what their pipeline hides."""
    letters = list(group.letters.order_by("-pk").values_list("pk", "transaction_id")[:COMPARED])
    if not letters:
        return None
    kept = {transaction_id for _, transaction_id in letters if transaction_id is not None}
    inside = dict(_small(TransactionRecord.objects.filter(pk__in=kept)))
    outside = dict(_small(DeadLetter.objects.filter(pk__in=[key for key, of in letters if of not in inside])))
    pipeline = Pipeline.objects.only("redacted").filter(name=group.source).first()
    redacted = pipeline.redacted if pipeline else []
    found = [
        (key, redaction.redact(payload, redacted))
        for key, of in letters
        if (payload := inside.get(of, outside.get(key))) is not None
    ]
    compared = variation.compare([payload for _, payload in found])
    key, newest = found[0] if found else (letters[0][0], None)
    return Sample(newest, redacted, key, compared, len(letters) - len(found))


def _small(rows: Any) -> Any:
    """The payloads that are small enough to be compared, by key; the database measures the others."""
    measured = rows.annotate(size=Length(Cast("payload", TextField())))
    return measured.filter(size__lte=LARGEST_COMPARED).order_by().values_list("pk", "payload")


def affected_by(group: DeadLetterGroup) -> Affected:
    """Pipelines, policy versions and workers of the newest members."""
    rows = list(
        group.letters.order_by("-pk").values_list(
            "uid", "transaction_id", "details__policy_version", "details__worker"
        )[:SAMPLED]
    )
    callers = {uid for uid, transaction_id, *_ in rows if transaction_id is None}
    calls = (
        TransactionRecord.objects.filter(uid__in=callers).order_by() if callers else TransactionRecord.objects.none()
    )
    of_calls = dict(calls.values_list("uid", "pipeline__name"))
    is_pipeline = any(transaction_id is not None for _, transaction_id, *_ in rows)
    pipelines = [of_calls.get(uid) or (group.source if is_pipeline else None) for uid, *_ in rows]
    return Affected(
        len(rows),
        _counted(pipelines),
        _named(PolicyVersion.objects.select_related("policy"), [row[2] for row in rows]),
        _named(Worker.objects.only("host", "pid"), [row[3] for row in rows]),
    )


def _named(rows: Any, keys: Sequence[Any]) -> list[tuple[str, int]]:
    names = {row.pk: str(row) for row in rows.filter(pk__in={key for key in keys if isinstance(key, int)})}
    return _counted(names.get(key) for key in keys)


def _counted(names: Iterable[str | None]) -> list[tuple[str, int]]:
    return Counter(name for name in names if name).most_common()


def tried_before(group: DeadLetterGroup) -> Tried:
    """The last bulk operations, and the last decisions about single members, with what came of them."""
    operations = list(group.operations.order_by("-pk")[:OPERATIONS])
    replaying = [operation for operation in operations if operation.verb == "replay"]
    done = BulkItem.objects.filter(operation__in=replaying, result="done").order_by() if replaying else []
    started = list(done.values_list("operation_id", "note")[:FOLLOWED]) if replaying else []
    settled = group.letters.filter(settled_at__isnull=False).order_by("-settled_at")
    fields = ("uid", "state", "settled_at", "settled_by", "reason", "replayed_as", "group_id")
    letters = list(settled.only(*fields)[:DECISIONS])
    items = BulkItem.objects.filter(letter__in=[letter.pk for letter in letters], result="done").order_by()
    in_bulk = set(items.values_list("letter_id", flat=True)) if operations else set()
    single = [letter for letter in letters if letter.pk not in in_bulk]
    replays = [letter for letter in single if letter.state == LetterState.REPLAYED.value]
    states = _states({*(letter.replayed_as for letter in replays), *(uid for _, uid in started)})
    by_operation: dict[int, list[str]] = {}
    for operation_id, uid in started:
        by_operation.setdefault(operation_id, []).append(states.get(uid, ""))
    return Tried(
        [(operation, _outcomes(by_operation.get(operation.pk, ()))) for operation in operations],
        [(letter, states.get(letter.replayed_as, "")) for letter in replays[:SHOWN]],
        _outcomes(states.get(letter.replayed_as, "") for letter in replays),
        len(single) - len(replays),
        len(letters) == DECISIONS,
    )


def _states(ids: Iterable[str]) -> dict[str, str]:
    asked = list(ids)
    rows = TransactionRecord.objects.filter(uid__in=asked).order_by().values_list("uid", "state") if asked else []
    return {uid: State(state).word for uid, state in rows}


def _outcomes(words: Iterable[str]) -> Outcomes:
    counts = Counter(words)
    running = counts["pending"] + counts["running"]
    return Outcomes(counts["succeeded"], counts["failed"], running, counts[""])
