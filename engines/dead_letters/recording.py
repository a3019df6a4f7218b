"""VERBS: record, record_failed, record_poison. One dead letter for every final failure, in the group of its kind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.db import IntegrityError
from django.db.models import F
from django.db.models.functions import Now

from engines import telemetry
from engines.core import failures
from engines.core.attempt import AttemptRecord
from engines.core.errors import ExceptionType
from engines.core.failures import fingerprint, normalise
from engines.core.outcome import Failure
from engines.core.states import GroupState
from engines.models import DeadLetter, DeadLetterGroup, DeadLetterHour, Pipeline, TransactionRecord
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from ergon_site.access.database.clock import database_time

TEXT = 200


class Poison(NamedTuple):
    """A transaction that was rescued too often."""

    record_id: int
    uid: str
    pipeline_id: int
    deliveries: int
    version: int | None
    worker: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDraft:
    """A terminal failure of any source, with what is needed to understand it.

    Whoever may have to record it again, because the answer of the database was lost, gives it a `draft_id`.
    """

    source: str
    uid: str
    step: str
    category: str
    error_type: str
    message: str
    traceback: str = ""
    transaction_id: int | None = None
    draft_id: UUID | None = None
    payload: Any = None
    details: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.source, self.step, self.error_type, self.message)

    @classmethod
    def of_failure(
        cls,
        failure: Failure,
        attempts: Sequence[tuple[AttemptRecord, str | None]],
        details: dict[str, Any],
        **about: Any,
    ) -> Self:
        """The draft of a failure after these attempts, each with the id of its trace."""
        told = failures.summary(failure, [attempted for attempted, _ in attempts])
        return cls(
            step=told["step"],
            category=told["category"],
            error_type=told["type"],
            message=told["message"],
            traceback=failures.traceback_of((failure.origin or failure).error),
            details={
                "attempts": len(attempts),
                **details,
                "trace_id": next((trace for _, trace in reversed(attempts) if trace), None),
                "exception_handler": told.get("exception_handler"),
            },
            **about,
        )


def record_failed(failed: Sequence[tuple[Any, Failure]], *, worker: int | None = None) -> None:
    """Record a dead letter for each failed transaction, in the database transaction of its end."""
    records = TransactionRecord.objects.filter(pk__in=[moved.lease.id for moved, _ in failed])
    known = {pk: about for pk, *about in records.values_list("pk", "pipeline__name", "attempts")}
    drafts = []
    for moved, failure in failed:
        lease = moved.lease
        source, deliveries = known[lease.id]
        details = {
            "attempts": lease.resumed.spent + len(lease.attempts),
            "delivery": deliveries,  # not the token of the lease: one that was parked has had several
            "policy_version": lease.policy_version,
            "worker": worker,
            "correlation_id": moved.correlation_id,
        }
        about = {"source": source, "uid": moved.id, "transaction_id": lease.id}
        drafts.append(DeadLetterDraft.of_failure(failure, lease.attempts, details, **about))
    record(drafts)


def record_poison(poison: Sequence[Poison]) -> None:
    """The end of transactions whose workers never came back."""
    pipelines = Pipeline.objects.in_bulk({one.pipeline_id for one in poison})
    drafts = []
    for one in poison:
        message = f"rescued {one.deliveries} times without finishing: its workers died or hung while running it"
        error = {"type": "PoisonTransaction", "message": message, "category": "SYSTEM", "step": "process"}
        TransactionRecord.objects.filter(pk=one.record_id).update(error=error, category=2)
        draft = DeadLetterDraft(
            source=pipelines[one.pipeline_id].name,
            uid=one.uid,
            step="process",
            category=ExceptionType.SYSTEM.value,
            error_type="PoisonTransaction",
            message=message,
            transaction_id=one.record_id,
            details={"deliveries": one.deliveries, "policy_version": one.version, "worker": one.worker},
        )
        drafts.append(draft)
    record(drafts)


def record(drafts: Sequence[DeadLetterDraft]) -> list[DeadLetter]:
    """Keep dead letters, each in the group of its kind; those of drafts that were recorded before are kept already."""
    try:
        letters = _keep(drafts)
    except IntegrityError:
        letters = _kept_before(drafts)
        if len(letters) != len(drafts):
            raise
    telemetry.dead_letters.add(len(letters))
    return letters


@retry_conflicts
@short_transaction()
def _keep(drafts: Sequence[DeadLetterDraft]) -> list[DeadLetter]:
    groups = _count_groups(drafts)
    return DeadLetter.objects.bulk_create(
        DeadLetter(
            group_id=groups[draft.fingerprint],
            **{name: getattr(draft, name) for name in draft.__slots__}
            | {"uid": draft.uid[:TEXT], "error_type": draft.error_type[:TEXT]},
        )
        for draft in drafts
    )


@short_transaction()
def _kept_before(drafts: Sequence[DeadLetterDraft]) -> list[DeadLetter]:
    """The dead letters of an earlier try.

    They are locked: the commit of a lock waits for a synchronous replica, which may lack what the earlier try has left.
    """
    known = [draft.draft_id for draft in drafts if draft.draft_id is not None]
    return list(DeadLetter.objects.select_for_update().filter(draft_id__in=known).order_by("pk"))


def _count_groups(drafts: Iterable[DeadLetterDraft]) -> dict[str, int]:
    """Count each kind once more, in one order everywhere, so that no two wait for each other; the groups' keys."""
    kinds: dict[str, list[DeadLetterDraft]] = {}
    for draft in drafts:
        kinds.setdefault(draft.fingerprint, []).append(draft)
    keys = {}
    for key, alike in sorted(kinds.items()):
        kind, count = alike[0], len(alike)
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
        keys[key] = group.pk
        rows = DeadLetterGroup.objects.filter(pk=group.pk)
        rows.update(total=F("total") + count, open_count=F("open_count") + count, last_seen_at=Now())
        rows.filter(state=GroupState.RESOLVED.value).update(state=GroupState.REGRESSED.value)
        hour = database_time().replace(minute=0, second=0, microsecond=0)
        trend, is_first = DeadLetterHour.objects.get_or_create(group_id=group.pk, hour=hour, defaults={"count": count})
        if not is_first:
            DeadLetterHour.objects.filter(pk=trend.pk).update(count=F("count") + count)
    return keys


def forget_trends(*, keep_for: timedelta = timedelta(days=30)) -> int:
    """Drop hours that no page shows any more."""
    return DeadLetterHour.objects.filter(hour__lt=database_time() - keep_for).delete()[0]
