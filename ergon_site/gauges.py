"""Numbers that no process counts for itself: read from the database whenever somebody asks for metrics."""

import time
from collections.abc import Iterator
from threading import Lock

import structlog
from django.db import DatabaseError, connections
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engines import workers
from engines.core.errors import headline
from engines.models import Pipeline
from engines.reads import executors, status
from ergon_site.access.database.clock import database_time
from facts.core.gates import Gate
from facts.reads import health
from providers.core.breaker import BreakerState
from providers.reads import health as calling

log = structlog.get_logger("ergon.gauges")

NAMES = (
    *("ergon_pipeline_waiting", "ergon_pipeline_oldest_seconds", "ergon_pipeline_running", "ergon_pipeline_paused"),
    *("ergon_dead_letters_open", "ergon_workers_alive", "ergon_executors_processes", "ergon_executors_failing"),
    *("bsfg_replication_lag_seconds", "bsfg_frontier_offset", "bsfg_store_buffer_fill_percent", "bsfg_gate_state"),
    *("bsfg_consumer_backlog", "bsfg_orphan_objects"),
    *("ergon_provider_breakers", "ergon_provider_quotas_exhausted", "ergon_provider_outbox_waiting"),
)


class Gauges(Collector):
    """Gauges of queues, running work, attention items, workers and boundaries."""

    def describe(self) -> list[Metric]:
        """Nothing is asked of the database before somebody asks for the numbers."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            yield from [*_of_pipelines(), *_of_the_whole(), *_of_executors(), *_of_boundaries(), *_of_providers()]
        except DatabaseError as error:
            # The other numbers must be there all the same, at such a time above all.
            log.warning("gauges_unread", error=headline(error))


class Reading:
    """The gauges for somebody who asks for each by its name: read once for all that are asked for at about once."""

    FRESH = 1.0

    def __init__(self) -> None:
        self._lock = Lock()
        self._read_at = float("-inf")
        self._samples: dict[str, list[tuple[float, dict[str, str]]]] = {}

    def samples(self, name: str) -> list[tuple[float, dict[str, str]]]:
        """Values and labels."""
        with self._lock:
            if time.monotonic() > self._read_at + self.FRESH:
                self._samples = self._take()
                self._read_at = time.monotonic()
            return self._samples.get(name, [])

    def _take(self) -> dict[str, list[tuple[float, dict[str, str]]]]:
        # Whoever exports does so in a thread of its own, which keeps no connection open in between.
        try:
            families = list(Gauges().collect())
        finally:
            connections.close_all()
        return {family.name: [(one.value, one.labels) for one in family.samples] for family in families}


def _of_pipelines() -> list[Metric]:
    waiting = GaugeMetricFamily("ergon_pipeline_waiting", "Pending transactions", labels=["pipeline"])
    oldest = GaugeMetricFamily(
        "ergon_pipeline_oldest_seconds", "Seconds since the oldest pending transaction was due", labels=["pipeline"]
    )
    running = GaugeMetricFamily("ergon_pipeline_running", "Running transactions", labels=["pipeline"])
    paused = GaugeMetricFamily("ergon_pipeline_paused", "1 while the pipeline is paused", labels=["pipeline"])
    rows = list(Pipeline.objects.all())
    stands = status.statuses([pipeline.pk for pipeline in rows], database_time())
    for pipeline in rows:
        one = stands[pipeline.pk]
        waiting.add_metric([pipeline.name], one.waiting)
        oldest.add_metric([pipeline.name], max(0.0, one.oldest_age or 0.0))
        running.add_metric([pipeline.name], one.running)
        paused.add_metric([pipeline.name], int(pipeline.is_paused))
    return [waiting, oldest, running, paused]


def _of_the_whole() -> list[Metric]:
    letters = GaugeMetricFamily("ergon_dead_letters_open", "Open dead letters")
    letters.add_metric([], status.open_letters())
    alive = GaugeMetricFamily("ergon_workers_alive", "Live workers")
    alive.add_metric([], workers.alive().count())
    return [letters, alive]


def _of_executors() -> list[Metric]:
    """As their workers told them last. What they count for ever is a counter of each worker's own."""
    processes = GaugeMetricFamily("ergon_executors_processes", "Processes of an executor", labels=["executor", "state"])
    failing = GaugeMetricFamily(
        "ergon_executors_failing", "Workers on which the executor keeps dying", labels=["executor"]
    )
    for executor in executors.list_executors():
        busy = sum(share.busy for share in executor.shares)
        processes.add_metric([executor.name, "busy"], busy)
        processes.add_metric([executor.name, "idle"], sum(share.total for share in executor.shares) - busy)
        failing.add_metric([executor.name], sum(1 for share in executor.shares if share.deaths_in_a_row))
    return [processes, failing]


def _of_boundaries() -> list[Metric]:
    zones = ["from_zone", "to_zone"]
    lag = GaugeMetricFamily("bsfg_replication_lag_seconds", "Age of the oldest fact not handed over", labels=zones)
    frontier = GaugeMetricFamily(
        "bsfg_frontier_offset",
        "Facts up to this offset are in the forward buffer and confirmed by all local consumers",
        labels=zones,
    )
    fill = GaugeMetricFamily("bsfg_store_buffer_fill_percent", "Fill level against the nearer limit", labels=zones)
    gate = GaugeMetricFamily("bsfg_gate_state", "1 for the gate's present state", labels=[*zones, "state"])
    behind = GaugeMetricFamily(
        "bsfg_consumer_backlog", "Facts that the consumer has not confirmed", labels=["consumer", *zones]
    )
    orphans = GaugeMetricFamily("bsfg_orphan_objects", "Artifacts that no fact refers to")
    orphans.add_metric([], health.orphans())
    for one in health.of_boundaries():
        pair = [one.boundary.from_zone.name, one.boundary.to_zone.name]
        lag.add_metric(pair, one.flow.lag)
        frontier.add_metric(pair, one.reached)
        fill.add_metric(pair, one.fill or 0.0)
        for state in Gate:
            gate.add_metric([*pair, state.value], int(one.boundary.gate == state))
        for reader in one.readers:
            behind.add_metric([reader.consumer.name, *pair], reader.flow.backlog)
    return [lag, frontier, fill, gate, behind, orphans]


def _of_providers() -> list[Metric]:
    """Tenants are counted, not named: as labels they would be without number."""
    named = ["provider", "capability"]
    breakers = GaugeMetricFamily(
        "ergon_provider_breakers", "Tenants by the breaker's effective state", labels=[*named, "state"]
    )
    spent = GaugeMetricFamily("ergon_provider_quotas_exhausted", "Tenants that have used up their quota", labels=named)
    waiting = GaugeMetricFamily("ergon_provider_outbox_waiting", "Dead letters that are not published yet")
    waiting.add_metric([], calling.waiting_letters())
    for one in calling.counts():
        names = [one["provider_name"], one["capability"]]
        for state in BreakerState:
            breakers.add_metric([*names, state.value], one[state.value])
        spent.add_metric(names, one["spent"])
    return [breakers, spent, waiting]
