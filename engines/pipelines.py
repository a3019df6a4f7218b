"""VERBS of pipelines: create, amend, pause, resume, submit a test."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from engines import policies, transactions
from engines.core import naming, summary
from engines.core.errors import EngineError
from engines.models import Pipeline, Schedule
from engines.transactions import Submitted
from engines.transactions.errors import PipelineUnknownError
from engines.transactions.statements import statements
from ergon_site.access import audit
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database.calls import retry_conflicts

DEFAULT_POLICY = {"inbound": "default", "outbound": "default-producer"}
KIND = {"inbound": "consumer", "outbound": "producer"}

Row = TypeVar("Row", Pipeline, Schedule)


class PipelineError(EngineError):
    """A pipeline that cannot be as asked."""

    code = "invalid_pipeline"


class PipelineTakenError(PipelineError):
    code = "pipeline_taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a pipeline named {name!r} already")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The fields of a pipeline; None keeps the present value, or takes the default."""

    task: str | None = None
    executor: str | None = None
    direction: str | None = None
    connector: str | None = None
    policy: str | None = None
    priority: int | None = None
    is_enabled: bool | None = None
    keep_succeeded_days: int | None = None
    keep_failed_days: int | None = None
    redacted: list[str] | None = None
    summary: list[str] | None = None


def amendment(**given: Any) -> Plan:
    """The plan of a change: naming a task or an executor takes the place of the other one."""
    instead = {"task": {"executor": ""}, "executor": {"task": ""}}
    other = next((instead[field] for field in instead if given.get(field)), {})
    return Plan(**{**other, **{name: value for name, value in given.items() if value is not None}})


@retry_conflicts
@transaction.atomic
def create(name: str, plan: Plan, *, by: str, reason: str = "") -> Pipeline:
    """A new pipeline; the task need not be known here yet, but one of task and executor must be named."""
    if refusal := naming.refusal("pipeline", name):
        raise PipelineError(refusal)
    if Pipeline.objects.filter(name=name).exists():
        raise PipelineTakenError(name)
    pipeline = Pipeline(name=name, direction=plan.direction or "inbound")
    _apply(pipeline, plan)
    save_new(pipeline, PipelineTakenError)
    audit.record(actor=by, action="pipeline.create", target=f"pipeline {name}", reason=reason, after=_as_dict(pipeline))
    return pipeline


@retry_conflicts
@transaction.atomic
def amend(name: str, plan: Plan, *, by: str, reason: str = "") -> Pipeline:
    """Change what a pipeline is; running consumers see it at their next batch, or at their next start."""
    pipeline = _lock(name)
    before = _as_dict(pipeline)
    _apply(pipeline, plan)
    pipeline.save()
    audit.record(
        actor=by,
        action="pipeline.amend",
        target=f"pipeline {name}",
        reason=reason,
        before=before,
        after=_as_dict(pipeline),
    )
    return pipeline


@retry_conflicts
@transaction.atomic
def pause(name: str, *, by: str, reason: str) -> Pipeline:
    """Stop claims at once; what runs is let end."""
    return turn(_lock(name), "pause", by=by, reason=reason)


@retry_conflicts
@transaction.atomic
def resume(name: str, *, by: str, reason: str) -> Pipeline:
    """Let claims go on."""
    pipeline = turn(_lock(name), "resume", by=by, reason=reason)
    statements().wake(pipeline.pk)
    return pipeline


def turn(row: Row, verb: str, *, by: str, reason: str, **also: Any) -> Row:
    """Pause or resume a locked pipeline or schedule, and write down who did it and why."""
    noun, rows = row._meta.verbose_name, type(row)._default_manager  # noqa: SLF001 (Django's own way)
    paused = {"paused_at": Now(), "paused_by": by, "pause_reason": reason}
    resumed = {"paused_at": None, "paused_by": "", "pause_reason": ""}
    rows.filter(pk=row.pk).update(**(paused if verb == "pause" else resumed), **also)
    states: dict[str, Any] = {"before": {"paused": row.paused_at is not None}, "after": {"paused": verb == "pause"}}
    audit.record(actor=by, action=f"{noun}.{verb}", target=f"{noun} {row.name}", reason=reason, **states)
    row.refresh_from_db()
    return row


@retry_conflicts
@transaction.atomic
def submit_test(name: str, payload: Any, *, by: str) -> Submitted:
    """Submit a transaction to try the pipeline with; the audit log names it, but not its payload."""
    submitted = transactions.submit(name, payload, source="test")
    audit.record(
        actor=by, action="pipeline.submit_test", target=f"pipeline {name}", after={"transaction": submitted.id}
    )
    return submitted


def find(name: str) -> Pipeline:
    return named(Pipeline.objects.select_related("policy__active"), name, PipelineUnknownError)


def served_by_default(direction: str) -> list[Pipeline]:
    """The pipelines of a consumer that names none."""
    return list(Pipeline.objects.select_related("policy__active").filter(direction=direction, is_enabled=True))


def _lock(name: str) -> Pipeline:
    return named(Pipeline.objects.select_for_update(), name, PipelineUnknownError)


def named(rows: QuerySet[Row], name: str, unknown: Callable[[str], EngineError]) -> Row:
    """The row of that name, which may be any text."""
    row = rows.filter(name=name).first() if is_storable(name) else None
    if row is None:
        raise unknown(name)
    return row


def save_new(row: Row, taken: Callable[[str], EngineError]) -> None:
    """Save a new row; somebody may have made one of its name in this very moment."""
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        raise taken(row.name) from None


def _apply(pipeline: Pipeline, plan: Plan) -> None:
    given: dict[str, Any] = {one.name: getattr(plan, one.name) for one in fields(plan)}
    policy = given.pop("policy") or (None if pipeline.pk else DEFAULT_POLICY[pipeline.direction])
    for name, value in given.items():
        if value is not None:
            setattr(pipeline, name, value)
    texts = {name: [getattr(pipeline, name)] for name in ("task", "executor", "connector")}
    for name, values in (texts | {"redacted": pipeline.redacted, "summary": pipeline.summary}).items():
        if not all(map(is_storable, values)):
            msg = f"{name} holds U+0000 or half of a surrogate pair, which no database text can"
            raise PipelineError(msg)
    if len(pipeline.summary) > summary.FIELDS:
        msg = f"a summary has at most {summary.FIELDS} fields"
        raise PipelineError(msg)
    if bool(pipeline.task) == bool(pipeline.executor):
        msg = "a pipeline runs a task or an executor: name one of them"
        raise PipelineError(msg)
    if policy is not None:
        pipeline.policy = policies.find(policy)
    if pipeline.policy.kind != (kind := KIND[pipeline.direction]):
        msg = f"an {pipeline.direction} pipeline needs a {kind} policy; {pipeline.policy.name!r} is not one"
        raise PipelineError(msg)


def _as_dict(pipeline: Pipeline) -> dict[str, Any]:
    names = [one.name for one in fields(Plan) if one.name != "policy"]
    return {name: getattr(pipeline, name) for name in names} | {"policy": pipeline.policy.name}
