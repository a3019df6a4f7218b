"""VERBS: record, record_failed, record_poison. One dead letter for every final failure, in the group of its kind."""

from collections import Counter
from collections.abc import Sequence
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


def _count_groups(drafts: Sequence[DeadLetterDraft]) -> dict[str, int]:
    """Count each kind once more, by a few statements however many there are; the groups' keys.

    Groups are made and locked in one order everywhere, so that no two wait for each other.
    """
    kinds = Counter(draft.fingerprint for draft in drafts)
    examples = {draft.fingerprint: draft for draft in reversed(drafts)}
    DeadLetterGroup.objects.bulk_create((_group(examples[key]) for key in sorted(kinds)), ignore_conflicts=True)
    groups = DeadLetterGroup.objects.filter(fingerprint__in=list(kinds))
    keys = dict(groups.select_for_update().order_by("fingerprint").values_list("fingerprint", "pk"))
    hour = database_time().replace(minute=0, second=0, microsecond=0)
    hours = (DeadLetterHour(group_id=pk, hour=hour, count=0) for pk in keys.values())
    DeadLetterHour.objects.bulk_create(hours, ignore_conflicts=True)
    for count in sorted(set(kinds.values())):
        counted = [pk for key, pk in keys.items() if kinds[key] == count]
        rows = DeadLetterGroup.objects.filter(pk__in=counted)
        rows.update(total=F("total") + count, open_count=F("open_count") + count, last_seen_at=Now())
        DeadLetterHour.objects.filter(group__in=counted, hour=hour).update(count=F("count") + count)
    again = DeadLetterGroup.objects.filter(pk__in=keys.values(), state=GroupState.RESOLVED.value)
    again.update(state=GroupState.REGRESSED.value)
    return keys


def _group(example: DeadLetterDraft) -> DeadLetterGroup:
    return DeadLetterGroup(
        fingerprint=example.fingerprint,
        source=example.source[:TEXT],
        step=example.step,
        category=example.category,
        error_type=example.error_type[:TEXT],
        message=normalise(failures.storable(example.message)),
    )


def forget_trends(*, keep_for: timedelta = timedelta(days=30)) -> int:
    """Drop hours that no page shows any more."""
    return DeadLetterHour.objects.filter(hour__lt=database_time() - keep_for).delete()[0]
