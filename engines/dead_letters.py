"""VERBS of dead letters: bury, replay, discard, reveal; and what is decided for a whole group of them.

A dead letter comes from a pipeline's transaction or from any other source that gives up for good.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from engines import telemetry
from engines.clock import database_time
from engines.core import failures
from engines.core.errors import EngineError, ExceptionType
from engines.core.fingerprint import fingerprint, normalise
from engines.core.outcome import Failure
from engines.core.states import GroupState, LetterState
from engines.models import DeadLetter, DeadLetterGroup, DeadLetterHour, Pipeline, TransactionRecord
from ergon_site.access import audit
from ergon_site.access.core import differences

TEXT = 200
AS_IT_WAS: Any = object()


class GroupUnknownError(EngineError):
    code = "group_unknown"

    def __init__(self, group_id: object) -> None:
        super().__init__(f"there is no group of dead letters {group_id}")


class LetterSettledError(EngineError):
    code = "letter_settled"

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__(f"the dead letter of {letter.uid!r} was {letter.state} by {letter.settled_by}")


class LetterUnknownError(EngineError):
    code = "letter_unknown"

    def __init__(self, letter_id: object) -> None:
        super().__init__(f"there is no dead letter {letter_id}")


class NotReplayableError(EngineError):
    code = "not_replayable"

    def __init__(self, letter: DeadLetter, why: str | None = None) -> None:
        reason = why or f"it comes from {letter.source!r}, which is no pipeline"
        super().__init__(f"the dead letter of {letter.uid!r} cannot be replayed: {reason}")


class Fates(NamedTuple):
    """How replays fare: how many have not come to an end yet, and how many have failed again."""

    out: int = 0
    failed: int = 0


class Replayer(Protocol):
    """Whoever replays the letters of other sources than pipelines; a module will do."""

    def knows(self, letter: DeadLetter, /) -> bool:
        """Whether it is a letter of theirs."""

    def replay(self, letter: DeadLetter, payload: Any, /) -> str:
        """Run it again, within the transaction that settles it; the id of what runs then."""

    def fates(self, ids: QuerySet[Any, Any], /) -> Fates:
        """How those fare that run under these ids."""

    def hindrance(self, letters: Sequence[DeadLetter], /) -> str:
        """Why it is of no use to replay these now; empty if nothing is known to stand in the way."""


_replayers: list[Replayer] = []


def replayed_by(replayer: Replayer) -> None:
    """Let another source replay its own letters."""
    if replayer not in _replayers:
        _replayers.append(replayer)


class Burial(NamedTuple):
    """A transaction of a pipeline, and the failure that ended it."""

    transaction: Any
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Grave:
    """A terminal failure of any source, with what is needed to understand it."""

    source: str
    uid: str
    step: str
    category: str
    error_type: str
    message: str
    traceback: str = ""
    transaction_id: int | None = None
    payload: Any = None
    details: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.source, self.step, self.error_type, self.message)


def bury(burials: Sequence[Burial], *, worker: int | None = None) -> None:
    """One dead letter for each transaction that failed, in the database transaction of its end."""
    records = TransactionRecord.objects.filter(pk__in=[one.transaction.lease.id for one in burials])
    names = dict(records.values_list("pk", "pipeline__name"))
    keep([_grave(one, names[one.transaction.lease.id], worker) for one in burials])


def bury_poison(
    record_id: int, uid: str, pipeline_id: int, deliveries: int, version: int | None, worker: int | None
) -> None:
    """The end of a transaction whose workers never came back."""
    message = f"rescued {deliveries} times without finishing: its workers died or hung while they ran it"
    error = {"type": "PoisonTransaction", "message": message, "category": "SYSTEM", "step": "process"}
    TransactionRecord.objects.filter(pk=record_id).update(error=error, category=2)
    grave = Grave(
        source=Pipeline.objects.values_list("name", flat=True).get(pk=pipeline_id),
        uid=uid,
        step="process",
        category=ExceptionType.SYSTEM.value,
        error_type="PoisonTransaction",
        message=message,
        transaction_id=record_id,
        details={"deliveries": deliveries, "policy_version": version, "worker": worker},
    )
    keep([grave])


@transaction.atomic
def keep(graves: Sequence[Grave]) -> list[DeadLetter]:
    """Keep dead letters, each in the group of its kind."""
    groups = _count_groups(graves)
    letters = DeadLetter.objects.bulk_create(
        DeadLetter(
            group_id=groups[grave.fingerprint],
            transaction_id=grave.transaction_id,
            uid=grave.uid[:TEXT],
            source=grave.source,
            step=grave.step,
            category=grave.category,
            error_type=grave.error_type[:TEXT],
            message=grave.message,
            traceback=grave.traceback,
            payload=grave.payload,
            details=grave.details,
        )
        for grave in graves
    )
    telemetry.dead_letters.add(len(letters))
    return letters


@transaction.atomic
def replay(letter_id: int, *, by: str, reason: str, payload: Any = AS_IT_WAS) -> str:
    """Run a dead letter's transaction again as a new one; the id of that."""
    from engines import transactions  # noqa: PLC0415 (settling buries, and replaying settles letters)

    letter = _open(letter_id)
    if letter.transaction_id is not None:
        return transactions.replay(letter.uid, by=by, reason=reason, payload=payload).id
    is_edited = payload is not AS_IT_WAS
    if (replayer := replayer_of(letter)) is not None:
        new = replayer.replay(letter, payload)
    elif Pipeline.objects.filter(name=letter.source).exists():
        new = _submit_again(letter, payload)
    else:
        raise NotReplayableError(letter)
    settle_as_replayed(letter, new, by=by, reason=reason)
    # Which fields were edited, never what they hold: payloads stay out of the log.
    edited = [change["path"] for change in _changes(letter, payload) or []]
    audit.record(
        actor=by,
        action="dead_letter.replay_edited" if is_edited else "dead_letter.replay",
        target=_target(letter),
        reason=reason,
        after={"as": new} | ({"edited": edited} if is_edited else {}),
    )
    return new


@transaction.atomic
def discard(letter_id: int, *, by: str, reason: str) -> DeadLetter:
    """Decide that a dead letter will not be replayed."""
    letter = _open(letter_id)
    _settle(letter, LetterState.DISCARDED, by=by, reason=reason)
    audit.record(actor=by, action="dead_letter.discard", target=_target(letter), reason=reason)
    return letter


@transaction.atomic
def reveal(letter_id: int, *, by: str, reason: str = "") -> Any:
    """The whole payload that would be replayed, hidden fields included; whoever looks is written down."""
    letter = DeadLetter.objects.filter(pk=letter_id).first()
    if letter is None:
        raise LetterUnknownError(letter_id)
    fields = {"fields": redacted_of(letter)}
    audit.record(actor=by, action="dead_letter.reveal", target=_target(letter), reason=reason, after=fields)
    return payload_of(letter)


@transaction.atomic
def decide(group_id: int, state: GroupState, *, by: str, reason: str) -> DeadLetterGroup:
    """Mute a group, say that it is resolved, or open it again."""
    group = DeadLetterGroup.objects.select_for_update().filter(pk=group_id).first()
    if group is None:
        raise GroupUnknownError(group_id)
    before = group.state
    group.state, group.decided_by, group.decision_reason = state.value, by, reason
    group.save(update_fields=["state", "decided_by", "decision_reason"])
    audit.record(
        actor=by,
        action=f"dead_letter_group.{state.value}",
        target=f"dead-letter group {group.pk}: {group}"[:300],
        reason=reason,
        before={"state": before},
        after={"state": state.value},
    )
    return group


def settle_as_replayed(letter: DeadLetter, new: str, *, by: str, reason: str) -> None:
    letter.replayed_as = new
    _settle(letter, LetterState.REPLAYED, by=by, reason=reason)


def replayer_of(letter: DeadLetter) -> Replayer | None:
    """Whoever else than its pipeline replays it."""
    return next((replayer for replayer in _replayers if replayer.knows(letter)), None)


def is_replayable(letter: DeadLetter) -> bool:
    """Whether somebody knows how to run it again."""
    return replayer_of(letter) is not None or Pipeline.objects.filter(name=letter.source).exists()


def payload_of(letter: DeadLetter) -> Any:
    """What would be replayed."""
    if letter.transaction_id is None:
        return letter.payload
    return TransactionRecord.objects.values_list("payload", flat=True).filter(pk=letter.transaction_id).first()


def redacted_of(letter: DeadLetter) -> list[str]:
    """The fields of its payload that pages hide: its pipeline says so."""
    fields: list[str] = Pipeline.objects.values_list("redacted", flat=True).filter(name=letter.source).first() or []
    return fields


def find_group(group_id: int) -> DeadLetterGroup:
    group = DeadLetterGroup.objects.filter(pk=group_id).first()
    if group is None:
        raise GroupUnknownError(group_id)
    return group


def find(letter_id: object) -> DeadLetter:
    """A dead letter by its number, or by the id of its transaction."""
    letters = DeadLetter.objects.select_related("group")
    text = str(letter_id)
    letter = letters.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 19 else None  # noqa: PLR2004
    letter = letter or letters.filter(uid=text).first()
    if letter is None:
        raise LetterUnknownError(letter_id)
    return letter


def _submit_again(letter: DeadLetter, payload: Any) -> str:
    """As a transaction of its pipeline, with all that is known of the one that came from elsewhere."""
    from engines import transactions  # noqa: PLC0415 (settling buries, and replaying settles letters)

    known = {name: (letter.details.get(name) or "")[:TEXT] or None for name in ("correlation_id", "source")}
    submitted = transactions.submit(
        letter.source,
        letter.payload if payload is AS_IT_WAS else payload,
        metadata=letter.details.get("metadata"),
        parent_id=letter.uid,
        payload_changes=_changes(letter, payload),
        **known,
    )
    return submitted.id


def _changes(letter: DeadLetter, payload: Any) -> list[dict[str, Any]] | None:
    return None if payload is AS_IT_WAS else differences.changes(letter.payload, payload)


def _open(letter_id: int) -> DeadLetter:
    letter = DeadLetter.objects.select_for_update().filter(pk=letter_id).first()
    if letter is None:
        raise LetterUnknownError(letter_id)
    if letter.state != LetterState.OPEN.value:
        raise LetterSettledError(letter)
    return letter


def _settle(letter: DeadLetter, state: LetterState, *, by: str, reason: str) -> None:
    letter.state, letter.settled_by, letter.reason = state.value, by, reason
    letter.settled_at = Now()
    letter.save(update_fields=["state", "settled_by", "reason", "settled_at", "replayed_as"])
    DeadLetterGroup.objects.filter(pk=letter.group_id).update(open_count=F("open_count") - 1)
    resolve_if_empty([letter.group_id])


def resolve_if_empty(group_ids: Iterable[int]) -> None:
    """A group of which nothing is open any more is resolved, unless somebody has muted it."""
    left = DeadLetterGroup.objects.filter(pk__in=group_ids, open_count__lte=0).exclude(state=GroupState.MUTED.value)
    left.update(state=GroupState.RESOLVED.value)


def _grave(burial: Burial, pipeline: str, worker: int | None) -> Grave:
    moved, failure = burial
    lease = moved.lease
    tried = [attempted for attempted, _ in lease.attempts]
    told = failures.summary(failure, tried)
    return Grave(
        source=pipeline,
        uid=moved.id,
        step=told["step"],
        category=told["category"],
        error_type=told["type"],
        message=told["message"],
        traceback=failures.traceback_of((failure.origin or failure).error),
        transaction_id=lease.id,
        details={
            "attempts": len(tried),
            "delivery": lease.token,
            "policy_version": lease.policy_version,
            "worker": worker,
            "correlation_id": moved.correlation_id,
            "trace_id": next((trace for _, trace in reversed(lease.attempts) if trace), None),
            "exception_handler": told.get("exception_handler"),
        },
    )


def _count_groups(graves: Iterable[Grave]) -> dict[str, int]:
    """Count each kind once more, in one order everywhere, so that no two wait for each other; the groups' keys."""
    kinds: dict[str, Grave] = {}
    counts: Counter[str] = Counter()
    for grave in graves:
        kinds.setdefault(grave.fingerprint, grave)
        counts[grave.fingerprint] += 1
    keys = {}
    for key in sorted(kinds):
        keys[key] = _count_group(key, kinds[key], counts[key])
    return keys


def _count_group(key: str, kind: Grave, count: int) -> int:
    group, _ = DeadLetterGroup.objects.get_or_create(
        fingerprint=key,
        defaults={
            "source": kind.source[:TEXT],
            "step": kind.step,
            "category": kind.category,
            "error_type": kind.error_type[:TEXT],
            "message": normalise(failures.storable(kind.message)),
        },
    )
    rows = DeadLetterGroup.objects.filter(pk=group.pk)
    rows.update(total=F("total") + count, open_count=F("open_count") + count, last_seen_at=Now())
    rows.filter(state=GroupState.RESOLVED.value).update(state=GroupState.REGRESSED.value)
    hour = database_time().replace(minute=0, second=0, microsecond=0)
    trend, is_first = DeadLetterHour.objects.get_or_create(group_id=group.pk, hour=hour, defaults={"count": count})
    if not is_first:
        DeadLetterHour.objects.filter(pk=trend.pk).update(count=F("count") + count)
    return group.pk


def forget_trends(*, keep_for: timedelta = timedelta(days=30)) -> int:
    """Drop hours that no page shows any more."""
    return DeadLetterHour.objects.filter(hour__lt=database_time() - keep_for).delete()[0]


def _target(letter: DeadLetter) -> str:
    return f"dead letter {letter.pk} of {letter.uid}"[:300]
