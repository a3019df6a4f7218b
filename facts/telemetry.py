"""Every instrument of the boundary, in one place. No content of a fact is in any of them."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from opentelemetry import metrics, trace

from facts.core.errors import ConflictingDuplicateError, FactError

D = TypeVar("D")
R = TypeVar("R")

tracer = trace.get_tracer("ergon.facts")
_meter = metrics.get_meter("ergon.facts")
_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

appends = _meter.create_counter("bsfg_append_requests", description="Requested appends")
append_failures = _meter.create_counter("bsfg_append_failures", description="Appends that were refused, by code")
append_latency = _meter.create_histogram(
    "bsfg_append_latency",
    unit="s",
    description="An append, commit included",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
duplicates = _meter.create_counter("bsfg_duplicate_appends", description="Appends that repeated an earlier one")
conflicts = _meter.create_counter("bsfg_conflicting_duplicates", description="Known message ids with different content")
fetches = _meter.create_counter("bsfg_fetch_requests", description="Fetches by consumers")
confirms = _meter.create_counter("bsfg_confirm_requests", description="Confirmations by consumers")
handed_over = _meter.create_counter("bsfg_handed_over", description="Facts that entered a forward buffer")
handoff_failures = _meter.create_counter("bsfg_handoff_failures", description="Handoffs that failed")
auth_failures = _meter.create_counter(
    "bsfg_auth_failures", description="Calls without a token, a scope, or a right to the zone, consumer or bucket"
)

# What the API answers where the database does not carry out a request.
UNAVAILABLE = "unavailable"
REFUSALS = (
    *("invalid_fact", "payload_too_large", "unsupported_media_type", "zone_not_authorized", "unknown_zone"),
    *("unknown_boundary", "unknown_artifact", "conflicting_duplicate", "buffer_full", UNAVAILABLE),
)


def begin_to_serve() -> None:
    """Count from zero: a rate begins with the second value, so whoever alerts needs one from before the first call."""
    for counter in (appends, duplicates, conflicts, fetches, confirms, auth_failures):
        counter.add(0)
    for code in REFUSALS:
        append_failures.add(0, {"code": code})


def begin_to_forward() -> None:
    """Count handoffs from zero."""
    for counter in (handed_over, handoff_failures):
        counter.add(0)


class Appending:
    """Around one append."""

    __slots__ = ("_started",)

    def __enter__(self) -> None:
        self._started = time.perf_counter()
        appends.add(1)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, FactError):
            _failed(error)
        elif error is not None:
            append_failures.add(1, {"code": UNAVAILABLE})
        append_latency.record(time.perf_counter() - self._started)


def appended_many(append: Callable[[Sequence[D]], list[R]], drafts: Sequence[D]) -> list[R]:
    """Append a batch, and count its results."""
    appends.add(len(drafts))
    try:
        results = append(drafts)
    except Exception:
        append_failures.add(len(drafts), {"code": UNAVAILABLE})
        raise
    repeated = 0
    for result in results:
        if isinstance(result, FactError):
            _failed(result)
        elif getattr(result, "is_duplicate", False):
            repeated += 1
    if repeated:
        duplicates.add(repeated)
    return results


def refused(error: FactError) -> None:
    """An append that did not come as far as the ledger."""
    appends.add(1)
    _failed(error)


def unread(code: str) -> None:
    """An append whose body could not be read as one."""
    appends.add(1)
    append_failures.add(1, {"code": code})


def _failed(error: FactError) -> None:
    append_failures.add(1, {"code": error.code})
    if isinstance(error, ConflictingDuplicateError):
        conflicts.add(1)
