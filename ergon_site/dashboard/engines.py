"""Attention items, figures and the status line of the engines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engines.core.states import GroupState
from engines.models import DeadLetterGroup, Pipeline
from engines.reads.dashboard import Pulse
from engines.reads.depth import COUNTED, Waiting
from ergon_site.access.console import drawing
from ergon_site.access.console.drawing import Column
from ergon_site.access.core import attention
from ergon_site.access.core.attention import Item, Severity
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right
from ergon_site.dashboard.attention import LONGEST_TITLE, Act, Face, Link, listed, page

LAST_HOUR = 60
SHOWN_WORKERS = 8
# Minutes to a column of a tile.
SPARK = 5
# One may be an accident of a single job.
DEATHS_THAT_CONCERN = 3
LETTERS, WAITING = ("dead letter", "dead letters"), ("waiting", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number, the list behind it, and how it was in the hour before."""

    title: str
    value: str
    address: Link
    trend: str = ""
    label: str = ""
    columns: Sequence[Column] = ()


def items(pulse: Pulse, now: datetime, causes: Mapping[int, Mapping[str, int]]) -> Iterator[Item]:
    """Attention items; `causes` are, by group of dead letters, the keys of items that explain some of them."""
    yield from (_group(group, now, causes.get(group.pk, {})) for group in pulse.groups)
    for pipeline, queue in pulse.queues.items():
        yield from _stopped(pipeline, queue, pulse, now)
    yield from _abandoned(pulse)
    yield from _failing_executors(pulse)


def _group(group: DeadLetterGroup, now: datetime, counts: Mapping[str, int]) -> Item:
    causes, count = attention.blame(counts, group.open_count)
    is_back = group.state == GroupState.REGRESSED.value
    ago = span((now - group.last_seen_at).total_seconds())
    is_capped = attention.MANY <= count < group.open_count
    some = f"{count:,}{'+' if is_capped else ''} of " if count < group.open_count else ""
    return Item(
        key=f"group:{group.pk}",
        severity=Severity.WARNING,
        title=f"{'Reopened: ' if is_back else ''}{some}{group.open_count:,} failed with {group}"[:LONGEST_TITLE],
        detail=f"In {group.step} of {group.source}, last {ago} ago.",
        cause=group.state,
        count=count,
        is_capped=is_capped,
        unit=LETTERS,
        caused_by=causes,
        shown=Face(
            address=page("engines_deadlettergroup_change", group.pk),
            behind=page("engines_deadlettergroup_changelist"),
            acts=(
                Act(title="Replay group", name="engines_deadlettergroup_replay_all", key=group.pk, right=Right.LEAD),
            ),
        ),
    )


def _stopped(pipeline: Pipeline, queue: Waiting, pulse: Pulse, now: datetime) -> Iterator[Item]:
    """A pipeline that starts nothing: somebody paused it, or no worker serves it; and what waits for that reason."""
    overdue = queue.overdue(now)
    if pipeline.paused_at:
        cause = Item(
            key=f"paused:{pipeline.pk}",
            severity=Severity.NOTICE,
            title=f"{pipeline.name} is paused",
            detail=f"By {pipeline.paused_by}: {pipeline.pause_reason}",
            since=pipeline.paused_at,
            cause=pipeline.paused_at.isoformat(),
            shown=Face(
                address=page("engines_pipeline_change", pipeline.pk),
                behind=page("engines_pipeline_changelist"),
                acts=(Act(title="Resume", name="engines_pipeline_resume", key=pipeline.pk, right=Right.OPERATE),),
            ),
        )
    elif overdue is not None and pipeline.name not in pulse.served:
        command = "consume" if pipeline.direction == "inbound" else "produce"
        cause = Item(
            key=f"unserved:{pipeline.pk}",
            severity=Severity.CRITICAL,
            title=f"No worker serves {pipeline.name}",
            detail=f"The oldest is due for {span(overdue)}. Start one with the command {command} {pipeline.name}",
            shown=Face(address=page("engines_pipeline_change", pipeline.pk), behind=transactions(state="pending")),
        )
    else:
        return
    yield cause
    if queue.count:
        yield waiting(f"waiting:{pipeline.pk}", pipeline.name, queue.count, cause.key, is_capped=queue.is_capped)


def waiting(key: str, pipeline: str, count: int, cause: str, *, is_capped: bool) -> Item:
    """Transactions of a pipeline that wait because of something."""
    return Item(
        key=key,
        severity=Severity.NOTICE,
        title=f"{min(count, COUNTED):,}{'+' if is_capped else ''} waiting in {pipeline}",
        count=min(count, COUNTED),
        is_capped=is_capped,
        unit=WAITING,
        caused_by=(cause,),
        shown=Face(address=transactions(state="pending", pipeline=pipeline)),
    )


def _abandoned(pulse: Pulse) -> Iterator[Item]:
    behind = page("engines_worker_changelist")
    for holding in pulse.holdings:
        if holding.lapsed:
            owner = holding.worker.pk if holding.worker else 0
            yield Item(
                key=f"leases:{owner}",
                severity=Severity.WARNING,
                title=f"Expired leases of {holding.worker or 'a worker'}: {holding.lapsed:,}",
                detail="Its transactions run again once maintenance or another worker has rescued them.",
                count=holding.lapsed,
                shown=Face(address=transactions(state="running", worker=owner), behind=behind),
            )
    for worker in pulse.workers:
        if worker.abandoned:
            yield Item(
                key=f"abandoned:{worker.pk}",
                severity=Severity.WARNING,
                title=f"{worker} has {worker.abandoned:,} abandoned attempt{'s' if worker.abandoned > 1 else ''}",
                detail="Handlers still run after their time limit. Too many of them stop the worker from taking work.",
                count=worker.abandoned,
                shown=Face(address=page("engines_worker_change", worker.pk), behind=behind),
            )


def _failing_executors(pulse: Pulse) -> Iterator[Item]:
    for worker in pulse.workers:
        for told in worker.executors:
            if told.get("deaths_in_a_row", 0) >= DEATHS_THAT_CONCERN:
                yield Item(
                    key=f"executor:{worker.pk}:{told['name']}"[:LONGEST_TITLE],
                    severity=Severity.CRITICAL,
                    title=f"The executor {told['name']} keeps dying on {worker}",
                    detail=f"{told['deaths_in_a_row']:,} times in a row. {told.get('last_fault', '')}"[:300],
                    shown=Face(
                        address=Link("engines_executor_list", rest=f"#executor-{told['name']}"),
                        behind=page("engines_executor_list"),
                    ),
                )


def figures(pulse: Pulse) -> Iterator[Figure]:
    """The tiles: numbers of the last hour against those of the hour before."""
    before, lately = pulse.series[-2 * LAST_HOUR : -LAST_HOUR], pulse.series[-LAST_HOUR:]
    waits = [sample.waiting if sample else 0 for sample in pulse.samples[-LAST_HOUR:]]
    hour_ago = next((sample for sample in pulse.samples[-LAST_HOUR:] if sample), None)
    yield Figure(
        title="Waiting",
        value=f"{pulse.waiting:,}{'+' if pulse.is_waiting_capped else ''}",
        address=transactions(state="pending"),
        trend=_against(pulse.waiting, hour_ago.waiting, "at") + f" {hour_ago.minute:%H:%M}" if hour_ago else "",
        **_spark("waiting", [max(waits[place : place + SPARK]) for place in range(0, len(waits), SPARK)]),
    )
    yield Figure(title="Running", value=f"{pulse.running:,}", address=transactions(state="running"))
    ended, ended_before = _ended(lately), _ended(before)
    failed, failed_before = _sum(lately, "bad"), _sum(before, "bad")
    yield Figure(
        title="Finished in the last hour",
        value=f"{ended:,}",
        address=transactions(ended="under-1h"),
        trend=_against(ended, ended_before, "the hour before"),
        **_spark("finished", [_ended(part) for part in _parts(lately)]),
    )
    yield Figure(
        title="Failure rate",
        value=_share(failed, ended),
        address=transactions(state="failed", ended="under-1h"),
        trend=f"{_share(failed_before, ended_before)} the hour before" if ended_before else "",
        **_spark("failed", [_sum(part, "bad") for part in _parts(lately)]),
    )
    alive = listed("engines_worker_changelist", state="alive")
    yield Figure(title="Running workers", value=f"{len(pulse.workers):,}", address=alive)
    unresolved = listed("engines_deadletter_changelist", state="open")
    yield Figure(title="Unresolved dead letters", value=f"{pulse.open_letters:,}", address=unresolved)


def status(pulse: Pulse) -> str:
    """The engines in one sentence."""
    if not pulse.queues:
        return "No pipelines."
    served = sum(1 for pipeline in pulse.queues if pipeline.name in pulse.served)
    paused = sum(1 for pipeline in pulse.queues if pipeline.is_paused)
    workers, verb = len(pulse.workers), "serves" if len(pulse.workers) == 1 else "serve"
    told = f"{_count(workers, 'worker')} {verb} {served:,} of {_count(len(pulse.queues), 'pipeline')}"
    return f"{told}{f', {paused:,} paused' if paused else ''}; {pulse.running:,} running."


def crew(pulse: Pulse, now: datetime) -> list[dict[str, Any]]:
    """The workers in an order that stays, those that miss heartbeats first, and when each was heard of."""
    silence = {worker.pk: max(0.0, (now - worker.heartbeat_at).total_seconds()) for worker in pulse.workers}
    late_first = sorted(
        pulse.workers, key=lambda worker: (silence[worker.pk] <= worker.lease / 2, worker.host, worker.pid, worker.pk)
    )
    return [{"worker": worker, "ago": span(silence[worker.pk])} for worker in late_first[:SHOWN_WORKERS]]


def transactions(**filters: Any) -> Link:
    return listed("engines_transactionrecord_changelist", **filters)


def _against(now: int, before: int, when: str) -> str:
    return f"{before:,} {when}" if now != before else f"the same as {when}" if before else ""


def _spark(what: str, values: Sequence[int]) -> dict[str, Any]:
    if not any(values):
        return {}
    label = f"{what} in the last hour, at most {max(values):,} in {SPARK} minutes"
    return {"label": label.capitalize(), "columns": drawing.columns(values)}


def _parts(series: Sequence[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    return [series[place : place + SPARK] for place in range(0, len(series), SPARK)]


def _ended(series: Sequence[dict[str, Any]]) -> int:
    return _sum(series, "ok") + _sum(series, "bad")


def _sum(series: Sequence[dict[str, Any]], name: str) -> int:
    return sum(one[name] for one in series)


def _share(failed: int, ended: int) -> str:
    return f"{100 * failed / ended:.1f} %" if ended else "–"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
