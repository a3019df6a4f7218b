"""Attention items and figures of the engines."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from engines.reads.dashboard import Pulse
from ergon_site.access.core.durations import span
from ergon_site.dashboard.attention import Concern, capped

LAST_HOUR = 60
SHOWN_WORKERS = 8
# One may be an accident of a single job.
DEATHS_THAT_CONCERN = 3


def concerns(pulse: Pulse, now: datetime) -> Iterator[Concern]:
    yield from _groups(pulse, now)
    yield from capped(_unserved(pulse, now), transactions(state="pending"))
    yield from capped(_abandoned(pulse), page("engines_worker_changelist"))
    yield from capped(_failing_executors(pulse), page("engines_executor_list"))
    yield from capped(_paused(pulse, now), page("engines_pipeline_changelist"))


def figures(pulse: Pulse) -> Iterator[tuple[str, object, str]]:
    """A title, a number, and where the list behind it is."""
    lately = pulse.series[-LAST_HOUR:]
    succeeded, failed = sum(one["ok"] for one in lately), sum(one["bad"] for one in lately)
    ended = succeeded + failed
    waiting = f"{pulse.waiting:,}{'+' if pulse.is_waiting_capped else ''}"
    yield "Waiting", waiting, transactions(state="pending")
    yield "Running", f"{pulse.running:,}", transactions(state="running")
    yield "Finished in the last hour", f"{ended:,}", transactions(ended="under-1h")
    share = f"{100 * failed / ended:.1f} %" if ended else "–"
    yield "Failure rate", share, transactions(state="failed", ended="under-1h")
    yield "Running workers", f"{len(pulse.workers):,}", page("engines_worker_changelist") + "?state=alive"
    yield "Open dead letters", f"{pulse.open_letters:,}", page("engines_deadletter_changelist") + "?state=open"


def crew(pulse: Pulse, now: datetime) -> list[dict[str, Any]]:
    """The workers in an order that stays, those that miss heartbeats first, and when each was heard of."""
    silence = {worker.pk: max(0.0, (now - worker.heartbeat_at).total_seconds()) for worker in pulse.workers}
    late_first = sorted(
        pulse.workers, key=lambda worker: (silence[worker.pk] <= worker.lease / 2, worker.host, worker.pid, worker.pk)
    )
    return [{"worker": worker, "ago": span(silence[worker.pk])} for worker in late_first[:SHOWN_WORKERS]]


def _groups(pulse: Pulse, now: datetime) -> Iterator[Concern]:
    for group in pulse.groups:
        back = "Reopened: " if group.state == "regressed" else ""
        ago = span((now - group.last_seen_at).total_seconds())
        yield Concern(
            title=f"{back}{group.open_count:,} failed with {group}"[:200],
            detail=f"In {group.step} of {group.source}, last {ago} ago. Replay, discard, resolve or mute.",
            address=page("engines_deadlettergroup_change", group.pk),
        )
    if others := pulse.open_groups - len(pulse.groups):
        title = f"and {others} more kind{'s' if others > 1 else ''} of failure"
        yield Concern(title=title, detail="", address=page("engines_deadlettergroup_changelist"), count=others)


def _unserved(pulse: Pulse, now: datetime) -> Iterator[Concern]:
    for pipeline, queue in pulse.queues.items():
        overdue = queue.overdue(now)
        if overdue is not None and not pipeline.is_paused and pipeline.name not in pulse.served:
            command = "consume" if pipeline.direction == "inbound" else "produce"
            waits = f"{queue.depth} pending, the oldest due for {span(overdue)}"
            yield Concern(
                title=f"No worker serves {pipeline.name}",
                detail=f"{waits}. Start one with the command {command} {pipeline.name}",
                address=transactions(state="pending", pipeline=pipeline.name),
            )


def _abandoned(pulse: Pulse) -> Iterator[Concern]:
    for holding in pulse.holdings:
        if holding.lapsed:
            yield Concern(
                title=f"Expired leases of {holding.worker or 'a worker'}: {holding.lapsed:,}",
                detail="Its transactions run again once maintenance or another worker has rescued them.",
                address=transactions(state="running", worker=holding.worker.pk if holding.worker else 0),
            )
    for worker in pulse.workers:
        if worker.abandoned:
            yield Concern(
                title=f"{worker} has {worker.abandoned:,} abandoned attempt{'s' if worker.abandoned > 1 else ''}",
                detail="Handlers still run after their time limit. Too many of them stop the worker from taking work.",
                address=page("engines_worker_change", worker.pk),
            )


def _failing_executors(pulse: Pulse) -> Iterator[Concern]:
    for worker in pulse.workers:
        for told in worker.executors:
            if told.get("deaths_in_a_row", 0) >= DEATHS_THAT_CONCERN:
                yield Concern(
                    title=f"The executor {told['name']} keeps dying on {worker}",
                    detail=f"{told['deaths_in_a_row']:,} times in a row. {told.get('last_fault', '')}"[:300],
                    address=f"{page('engines_executor_list')}#executor-{told['name']}",
                )


def _paused(pulse: Pulse, now: datetime) -> Iterator[Concern]:
    for pipeline, queue in pulse.queues.items():
        if pipeline.paused_at:
            ago = span((now - pipeline.paused_at).total_seconds())
            yield Concern(
                title=f"{pipeline.name} is paused",
                detail=f"By {pipeline.paused_by} {ago} ago: {pipeline.pause_reason}. {queue.depth} waiting.",
                address=page("engines_pipeline_change", pipeline.pk),
            )


def transactions(**filters: Any) -> str:
    return f"{page('engines_transactionrecord_changelist')}?{urlencode(filters)}"


def page(name: str, *arguments: Any) -> str:
    return reverse(f"ergon:{name}", args=arguments)
