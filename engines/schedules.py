"""VERBS of schedules: create, pause, resume, fire. However many fire, each run is submitted once."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from django.db import connection, transaction

from engines import pipelines, transactions
from engines.conf import settings
from engines.core import naming
from engines.core.errors import EngineError
from engines.models import Schedule
from engines.transactions import Draft, payloads
from ergon_site.access import audit
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from ergon_site.access.database.clock import database_time

# A run that is later than this was missed, and the schedule's rule for missed runs decides about it.
PUNCTUAL = timedelta(minutes=1)
NOW = "statement_timestamp()"
IS_ANY_DUE = "SELECT EXISTS (SELECT 1 FROM engines_schedule WHERE paused_at IS NULL AND next_run_at <= {now})"
CAUGHT_UP_AT_ONCE = 1000
LONGEST_CRON = 100


class ScheduleError(EngineError):
    """A schedule that cannot be as asked."""

    code = "invalid_schedule"


class ScheduleUnknownError(ScheduleError):
    code = "schedule_unknown"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule named {name!r}")


class ScheduleTakenError(ScheduleError):
    code = "schedule_taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a schedule named {name!r} already")


def runs_after(cron: str, time_zone: str, after: datetime, *, backwards: bool = False) -> Iterator[datetime]:
    """The times of a cron expression, by the clock on the wall of its zone."""
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = f"there is no time zone named {time_zone!r}"
        raise ScheduleError(msg) from None
    try:
        return iter(CronSim(cron, after.astimezone(zone), reverse=backwards))
    except CronSimError as error:
        msg = f"{cron!r} is not a cron expression: {error}"
        raise ScheduleError(msg) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The fields of a schedule."""

    pipeline: str
    cron: str
    time_zone: str = "UTC"
    payload: Any = None
    catch_up: str = "one"


@retry_conflicts
@transaction.atomic
def create(name: str, plan: Plan, *, by: str, reason: str = "") -> Schedule:
    """Submit the payload to the pipeline at these times."""
    if refusal := naming.refusal("schedule", name):
        raise ScheduleError(refusal)
    if Schedule.objects.filter(name=name).exists():
        raise ScheduleTakenError(name)
    if plan.catch_up not in dict(Schedule.CATCH_UP):
        msg = f"catch_up must be one, all or none, not {plan.catch_up!r}"
        raise ScheduleError(msg)
    if len(plan.cron) > LONGEST_CRON:
        msg = f"a cron expression has at most {LONGEST_CRON} characters"
        raise ScheduleError(msg)
    try:
        payloads.encode(plan.payload, limit=settings().payload_limit)
    except payloads.PayloadError as error:
        raise ScheduleError(str(error)) from None
    schedule = Schedule(name=name, created_by=by, **asdict(plan) | {"pipeline": pipelines.find(plan.pipeline)})
    schedule.next_run_at = _next(schedule, database_time())
    pipelines.save_new(schedule, ScheduleTakenError)
    told = {"pipeline": plan.pipeline, "cron": plan.cron, "time_zone": plan.time_zone, "catch_up": plan.catch_up}
    audit.record(actor=by, action="schedule.create", target=f"schedule {name}", reason=reason, after=told)
    return schedule


@retry_conflicts
@transaction.atomic
def pause(name: str, *, by: str, reason: str) -> Schedule:
    return pipelines.turn(_lock(name), "pause", by=by, reason=reason)


@retry_conflicts
@transaction.atomic
def resume(name: str, *, by: str, reason: str) -> Schedule:
    """Go on from now: what was missed while paused is not caught up with."""
    schedule = _lock(name)
    return pipelines.turn(schedule, "resume", by=by, reason=reason, next_run_at=_next(schedule, database_time()))


def find(name: str) -> Schedule:
    return pipelines.named(Schedule.objects.select_related("pipeline"), name, ScheduleUnknownError)


def fire() -> int:
    """Submit every run that is due; how many. A schedule that cannot be fired does not hold up the others."""
    if not _is_any_due():
        return 0
    fired = 0
    broken: dict[str, EngineError] = {}
    while (runs := _fire_one(broken)) is not None:
        fired += runs
    if broken:
        raise ScheduleError("; ".join(f"the schedule {name!r} cannot run: {why}" for name, why in broken.items()))
    return fired


def _is_any_due() -> bool:
    """A look in one statement and without a transaction: it is asked for every second, and mostly for nothing."""
    is_local = connection.vendor != "postgresql"
    now, given = ("%s", [connection.ops.adapt_datetimefield_value(database_time())]) if is_local else (NOW, [])
    with connection.cursor() as cursor:
        cursor.execute(IS_ANY_DUE.format(now=now), given)
        return bool(cursor.fetchone()[0])


@retry_conflicts
@short_transaction()
def _fire_one(broken: dict[str, EngineError]) -> int | None:
    """The schedule that is most due and that nobody else fires now."""
    now = database_time()
    due = Schedule.objects.filter(paused_at=None, next_run_at__lte=now).exclude(name__in=broken)
    due = due.order_by("next_run_at", "pk")
    if connection.features.has_select_for_update_skip_locked:
        due = due.select_for_update(of=("self",), skip_locked=True)
    schedule = due.select_related("pipeline").first()
    if schedule is None:
        return None
    try:
        with transaction.atomic():
            return _submit_runs(schedule, now)
    except EngineError as error:
        broken[schedule.name] = error
        return 0


def _submit_runs(schedule: Schedule, now: datetime) -> int:
    """Submit the missed runs, up to the limit of one pass; or only the latest, where only that one counts."""
    if schedule.catch_up == "all":
        times = runs_after(schedule.cron, schedule.time_zone, schedule.next_run_at)
        later = takewhile(lambda run_at: run_at <= now, islice(times, CAUGHT_UP_AT_ONCE))
        runs = [schedule.next_run_at, *later]
    else:
        # Looked for backwards: a schedule may have slept through years of minutes.
        times = runs_after(schedule.cron, schedule.time_zone, now + timedelta(minutes=1), backwards=True)
        latest = next((run_at for run_at in times if run_at <= now), schedule.next_run_at)
        runs = [max(schedule.next_run_at, latest)]
    drafts = []
    for run_at in runs:
        if schedule.catch_up == "none" and now - run_at > PUNCTUAL:
            continue
        # The key makes a run one, should two ever think it theirs.
        key = dedupe_key(schedule, run_at)
        drafts.append(Draft(schedule.payload, dedupe_key=key, source=f"schedule:{schedule.name}"))
    transactions.submit_many(schedule.pipeline.name, drafts)
    schedule.last_run_at, schedule.next_run_at = runs[-1], _next(schedule, runs[-1])
    schedule.save(update_fields=["last_run_at", "next_run_at"])
    return len(drafts)


def dedupe_key(schedule: Schedule, run_at: datetime) -> str:
    """The key of one run among the transactions of the schedule's pipeline."""
    return f"schedule:{schedule.pk}:{run_at.astimezone(UTC).isoformat()}"


def _next(schedule: Schedule, after: datetime) -> datetime:
    try:
        return next(runs_after(schedule.cron, schedule.time_zone, after))
    except StopIteration:
        msg = f"{schedule.cron!r} has no further run"
        raise ScheduleError(msg) from None


def _lock(name: str) -> Schedule:
    return pipelines.named(Schedule.objects.select_for_update(), name, ScheduleUnknownError)
