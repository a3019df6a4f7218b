"""Numbers that no process counts for itself: read from the database whenever somebody asks for metrics."""

import time
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

import structlog
from django.apps import apps
from django.db import DatabaseError, connections
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engines import workers
from engines.core.errors import headline
from engines.models import Pipeline
from engines.reads import executors, status
from ergon_site.access.conf import setting
from ergon_site.access.database.calls import time_limit
from ergon_site.access.database.clock import database_time
from facts.core.gates import Gate
from providers.core.breaker import BreakerState

HAS_FACTS, HAS_PROVIDERS = apps.is_installed("facts"), apps.is_installed("providers")
if HAS_FACTS:
    from facts.reads import health
if HAS_PROVIDERS:
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
    def describe(self) -> list[Metric]:
        """Nothing is asked of the database before somebody asks for the numbers."""
        return []

    def collect(self) -> Iterator[Metric]:
        found: list[Metric] = []
        try:
            with time_limit(setting("ERGON_DATABASE_TIMEOUT")):
                boundaries, calls = _of_boundaries() if HAS_FACTS else (), _of_providers() if HAS_PROVIDERS else ()
                found = [*_of_engines(), *_of_executors(), *boundaries, *calls]
        except DatabaseError as error:
            # The other numbers must be there all the same, at such a time above all.
            log.warning("gauges_unread", error=headline(error))
        yield from found


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
                # Whoever exports does so in a thread of its own, which keeps no connection open in between.
                try:
                    families = list(Gauges().collect())
                finally:
                    connections.close_all()
                self._samples = {one.name: [(each.value, each.labels) for each in one.samples] for one in families}
                self._read_at = time.monotonic()
            return self._samples.get(name, [])


def _gauge(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[list[str], float]]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for labelled, value in values:
        gauge.add_metric(labelled, value)
    return gauge


def _of_engines() -> Iterator[Metric]:
    rows, named = list(Pipeline.objects.all()), ["pipeline"]
    stands = status.statuses([pipeline.pk for pipeline in rows], database_time())
    found = [([pipeline.name], stands[pipeline.pk]) for pipeline in rows]
    yield _gauge("ergon_pipeline_waiting", "Pending transactions", named, [(key, one.waiting) for key, one in found])
    oldest = [(key, max(0.0, one.oldest_age or 0.0)) for key, one in found]
    text = "Seconds since the oldest pending transaction was due"
    yield _gauge("ergon_pipeline_oldest_seconds", text, named, oldest)
    yield _gauge("ergon_pipeline_running", "Running transactions", named, [(key, one.running) for key, one in found])
    paused = [([pipeline.name], int(pipeline.is_paused)) for pipeline in rows]
    yield _gauge("ergon_pipeline_paused", "1 while the pipeline is paused", named, paused)
    yield _gauge("ergon_dead_letters_open", "Open dead letters", [], [([], status.open_letters())])
    yield _gauge("ergon_workers_alive", "Live workers", [], [([], workers.alive().count())])


def _of_executors() -> Iterator[Metric]:
    """As their workers told them last. What they count for ever is a counter of each worker's own."""
    processes, failing = [], []
    for executor in executors.list_executors():
        busy = sum(share.busy for share in executor.shares)
        processes.append(([executor.name, "busy"], busy))
        processes.append(([executor.name, "idle"], sum(share.total for share in executor.shares) - busy))
        failing.append(([executor.name], sum(1 for share in executor.shares if share.deaths_in_a_row)))
    yield _gauge("ergon_executors_processes", "Processes of an executor", ["executor", "state"], processes)
    yield _gauge("ergon_executors_failing", "Workers on which the executor keeps dying", ["executor"], failing)


def _of_boundaries() -> Iterator[Metric]:
    zones, orphans = ["from_zone", "to_zone"], health.orphans()
    found = [([one.boundary.from_zone.name, one.boundary.to_zone.name], one) for one in health.of_boundaries()]
    lags = [(pair, one.flow.lag) for pair, one in found]
    yield _gauge("bsfg_replication_lag_seconds", "Age of the oldest fact not handed over", zones, lags)
    text = "Facts up to this offset are in the forward buffer and confirmed by all local consumers"
    yield _gauge("bsfg_frontier_offset", text, zones, [(pair, one.reached) for pair, one in found])
    fills = [(pair, one.fill or 0.0) for pair, one in found]
    yield _gauge("bsfg_store_buffer_fill_percent", "Fill level against the nearer limit", zones, fills)
    gates = [([*pair, state.value], int(one.boundary.gate == state)) for pair, one in found for state in Gate]
    yield _gauge("bsfg_gate_state", "1 for the gate's present state", [*zones, "state"], gates)
    behind = [([each.consumer.name, *pair], each.flow.backlog) for pair, one in found for each in one.readers]
    text = "Facts that the consumer has not confirmed"
    yield _gauge("bsfg_consumer_backlog", text, ["consumer", *zones], behind)
    yield _gauge("bsfg_orphan_objects", "Artifacts that no fact refers to", [], [([], orphans)])


def _of_providers() -> Iterator[Metric]:
    """Tenants are counted, not named: as labels they would be without number."""
    named, waiting = ["provider", "capability"], calling.waiting_letters()
    found = [([one["provider_name"], one["capability"]], one) for one in calling.counts()]
    states = [([*names, state.value], one[state.value]) for names, one in found for state in BreakerState]
    yield _gauge("ergon_provider_breakers", "Tenants by the breaker's effective state", [*named, "state"], states)
    spent = [(names, one["spent"]) for names, one in found]
    yield _gauge("ergon_provider_quotas_exhausted", "Tenants that have used up their quota", named, spent)
    text = "Dead letters that are not published yet"
    yield _gauge("ergon_provider_outbox_waiting", text, [], [([], waiting)])
