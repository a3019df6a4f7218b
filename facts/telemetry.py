"""Every instrument of the boundary, in one place. No content of a fact is in any of them."""

import time
from collections.abc import Sequence
from typing import Any

from opentelemetry import metrics, trace

from facts.core.errors import ConflictingDuplicateError, FactError

tracer = trace.get_tracer("ergon.facts")
_meter = metrics.get_meter("ergon.facts")
_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

appends = _meter.create_counter("bsfg_append_requests", description="Appends that were asked for")
append_failures = _meter.create_counter("bsfg_append_failures", description="Appends that were refused, by code")
append_latency = _meter.create_histogram(
    "bsfg_append_latency",
    unit="s",
    description="An append, commit included",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
duplicates = _meter.create_counter("bsfg_duplicate_appends", description="Appends that repeated an earlier one")
conflicts = _meter.create_counter("bsfg_conflicting_duplicates", description="Known ids with another content")
fetches = _meter.create_counter("bsfg_fetch_requests", description="Fetches by consumers")
confirms = _meter.create_counter("bsfg_confirm_requests", description="Confirmations by consumers")
auth_failures = _meter.create_counter(
    "bsfg_auth_failures", description="Calls without a token, a scope, or a right to the zone, consumer or bucket"
)


class Appending:
    """Around one append."""

    __slots__ = ("_started",)

    def __enter__(self) -> None:
        self._started = time.perf_counter()
        appends.add(1)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, FactError):
            _failed(error)
        append_latency.record(time.perf_counter() - self._started)


def appended(results: Sequence[Any]) -> None:
    """After many."""
    appends.add(len(results))
    repeated = 0
    for result in results:
        if isinstance(result, FactError):
            _failed(result)
        elif result.is_duplicate:
            repeated += 1
    if repeated:
        duplicates.add(repeated)


def refused(error: FactError) -> None:
    """An append that did not come as far as the ledger."""
    appends.add(1)
    _failed(error)


def _failed(error: FactError) -> None:
    append_failures.add(1, {"code": error.code})
    if isinstance(error, ConflictingDuplicateError):
        conflicts.add(1)
