"""What the page of a dead-letter group tells of its members, of which it looks at few, however many there are."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q, Subquery, TextField
from django.db.models.fields.json import KeyTransform
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
)
from engines.reads.dead_letters import list_letters
from ergon_site.access.keyset import KeysetQuery

# Of the newest members so many payloads are compared, unless they are large, and so many are asked for a traceback.
COMPARED = 20
LARGEST_COMPARED = 64 * 1024
ASKED = 5
# Decisions about members that are followed up: the last ones, and bulk operations.
DECISIONS = 200
OPERATIONS = 5
SHOWN = 5


class Sample(NamedTuple):
    """Payloads of the newest members: the newest of all, in what they differ, and how many were too large for that."""

    newest: Any
    is_redacted: bool
    variation: Variation
    too_large: int


class Affected(NamedTuple):
    """The pipelines that failed, or called what failed, and the policy versions, each with its number of members."""

    looked_at: int
    pipelines: list[str]
    versions: list[tuple[str, int]]


class Outcomes(NamedTuple):
    """What became of replays."""

    succeeded: int = 0
    failed: int = 0
    running: int = 0
    unknown: int = 0


class Tried(NamedTuple):
    """Earlier decisions about members: in bulk, and one by one."""

    operations: list[BulkOperation]
    replays: list[tuple[DeadLetter, str]]
    outcomes: Outcomes
    discarded: int
    is_capped: bool


def members(group: DeadLetterGroup) -> KeysetQuery:
    """The dead letters of a group, the newest first, each with the policy version that it ran under."""
    query = list_letters({"group": str(group.pk)})
    return KeysetQuery(rows=query.rows.annotate(version=KeyTransform("policy_version", "details")), rest=query.rest)


def newest_traceback(letters: Sequence[DeadLetter]) -> DeadLetter | None:
    """The newest of these members that has a traceback."""
    found = DeadLetter.objects.filter(pk__in=[letter.pk for letter in letters[:ASKED]]).exclude(traceback="")
    return found.defer("payload", "details").order_by("-pk").first()


def sample_and_affected(group: DeadLetterGroup, letters: Sequence[Any]) -> tuple[Sample, Affected]:
    """The payloads of these members, without what pipelines hide, and what they ran under."""
    outside = [letter for letter in letters if letter.transaction_id is None]
    found = _inside([letter.transaction_id for letter in letters[:COMPARED]])
    pipelines = {name for name, _ in found.values()}
    if outside:
        # A call to a provider goes by the id of the transaction that it was made for.
        callers = TransactionRecord.objects.filter(uid__in=[letter.uid for letter in outside]).order_by()
        rows = Pipeline.objects.filter(Q(name=group.source) | Q(pk__in=callers.values("pipeline_id")))
        known = {pipeline.name: pipeline.redacted for pipeline in rows.only("name", "redacted")}
        kept = _small(DeadLetter.objects.filter(pk__in=[letter.pk for letter in outside[:COMPARED]]))
        hidden = known.get(group.source, [])
        found |= {
            -key: (group.source, _Shown.of(payload, hidden)) for key, payload in kept.values_list("pk", "payload")
        }
        pipelines |= set(known)
    else:
        pipelines.add(group.source)
    shown = [
        payload
        for letter in letters[:COMPARED]
        for _, payload in [found.get(letter.transaction_id or -letter.pk, ("", None))]
        if payload is not None
    ]
    compared = variation.compare([one.payload for one in shown])
    newest = shown[0].payload if shown else None
    too_large = min(len(letters), COMPARED) - len(shown)
    sample = Sample(newest, any(one.is_redacted for one in shown), compared, too_large)
    return sample, Affected(len(letters), sorted(pipelines), _versions([letter.version for letter in letters]))


class _Shown(NamedTuple):
    payload: Any
    is_redacted: bool

    @classmethod
    def of(cls, payload: Any, hidden: Sequence[str]) -> "_Shown":
        shown = redaction.redact(payload, hidden)
        return cls(shown, shown != payload)


def _inside(keys: Iterable[int | None]) -> dict[int, tuple[str, _Shown]]:
    """Of transactions in the database the pipeline and the payload, by key."""
    asked = [key for key in keys if key is not None]
    rows: Any = _small(TransactionRecord.objects.filter(pk__in=asked)) if asked else TransactionRecord.objects.none()
    fields = rows.values_list("pk", "pipeline__name", "payload", "pipeline__redacted")
    return {key: (name, _Shown.of(payload, hidden)) for key, name, payload, hidden in fields}


def _small(rows: Any) -> Any:
    """Those whose payload is small enough to be compared; the database measures it, so that no large one travels."""
    return rows.annotate(size=Length(Cast("payload", TextField()))).filter(size__lte=LARGEST_COMPARED).order_by()


def _versions(keys: Sequence[Any]) -> list[tuple[str, int]]:
    counts = Counter(key for key in keys if isinstance(key, int))
    rows = PolicyVersion.objects.select_related("policy").filter(pk__in=counts) if counts else []
    names = {row.pk: str(row) for row in rows}
    return [(names[key], count) for key, count in counts.most_common() if key in names]


def tried_before(group: DeadLetterGroup) -> Tried:
    """The last bulk operations, and the last decisions about single members, with what came of them."""
    settled = group.letters.filter(settled_at__isnull=False).order_by("-settled_at")
    fields = ("uid", "state", "settled_at", "settled_by", "replayed_as", "group_id")
    told = {
        "is_in_bulk": Exists(BulkItem.objects.filter(result="done", letter_id=OuterRef("pk"))),
        "end": Subquery(TransactionRecord.objects.filter(uid=OuterRef("replayed_as")).values("state")),
    }
    letters: list[Any] = list(settled.only(*fields).annotate(**told)[:DECISIONS])
    single = [letter for letter in letters if not letter.is_in_bulk]
    replays = [letter for letter in single if letter.state == LetterState.REPLAYED.value]
    ends = ["" if letter.end is None else State(letter.end).word for letter in replays]
    return Tried(
        list(group.operations.order_by("-pk")[:OPERATIONS]),
        list(zip(replays, ends, strict=True))[:SHOWN],
        _outcomes(ends),
        len(single) - len(replays),
        len(letters) == DECISIONS,
    )


def _outcomes(words: Iterable[str]) -> Outcomes:
    counts = Counter(words)
    running = counts["pending"] + counts["running"]
    return Outcomes(counts["succeeded"], counts["failed"], running, counts[""])
