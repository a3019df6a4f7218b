"""Numbers that no process counts for itself: read from the database whenever somebody asks for metrics."""

from collections.abc import Iterator

import structlog
from django.db import DatabaseError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engines import executing, overview, standings, workers
from engines.clock import database_time
from engines.core.errors import headline
from engines.models import Pipeline

log = structlog.get_logger("ergon.gauges")


class Gauges(Collector):
    """What waits, what runs, what needs a person, who works."""

    def describe(self) -> list[Metric]:
        """Nothing is asked of the database before somebody asks for the numbers."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            yield from [*_of_pipelines(), *_of_the_whole(), *_of_executors()]
        except DatabaseError as error:
            # The other numbers must be there all the same, at such a time above all.
            log.warning("gauges_unread", error=headline(error))


def _of_pipelines() -> list[Metric]:
    waiting = GaugeMetricFamily("ergon_pipeline_waiting", "Transactions that wait, counted so far", labels=["pipeline"])
    oldest = GaugeMetricFamily("ergon_pipeline_oldest_seconds", "How long the first one is due", labels=["pipeline"])
    running = GaugeMetricFamily("ergon_pipeline_running", "Transactions that run", labels=["pipeline"])
    paused = GaugeMetricFamily("ergon_pipeline_paused", "1 while it is paused", labels=["pipeline"])
    rows = list(Pipeline.objects.all())
    stands = standings.of([pipeline.pk for pipeline in rows], database_time())
    for pipeline in rows:
        standing = stands[pipeline.pk]
        waiting.add_metric([pipeline.name], standing.waiting)
        oldest.add_metric([pipeline.name], max(0.0, standing.oldest_age or 0.0))
        running.add_metric([pipeline.name], standing.running)
        paused.add_metric([pipeline.name], int(pipeline.is_paused))
    return [waiting, oldest, running, paused]


def _of_the_whole() -> list[Metric]:
    letters = GaugeMetricFamily("ergon_dead_letters_open", "Terminal failures that wait for a person")
    letters.add_metric([], overview.open_letters())
    alive = GaugeMetricFamily("ergon_workers_alive", "Processes that run transactions")
    alive.add_metric([], workers.alive().count())
    return [letters, alive]


def _of_executors() -> list[Metric]:
    """As their workers told them last. What they count for ever is a counter of each worker's own."""
    processes = GaugeMetricFamily("ergon_executors_processes", "Processes of an executor", labels=["executor", "state"])
    failing = GaugeMetricFamily("ergon_executors_failing", "Workers on which it keeps dying", labels=["executor"])
    for executor in executing.executors():
        busy = sum(share.busy for share in executor.shares)
        processes.add_metric([executor.name, "busy"], busy)
        processes.add_metric([executor.name, "idle"], sum(share.total for share in executor.shares) - busy)
        failing.add_metric([executor.name], sum(1 for share in executor.shares if share.deaths_in_a_row))
    return [processes, failing]
