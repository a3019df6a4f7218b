"""Latencies in buckets that grow by 7 %: small to keep, easy to add up, and exact within the bucket."""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log
from typing import Any, NamedTuple

GROWTH = 1.07
SMALLEST = 0.01  # milliseconds; everything below is one bucket
P95 = 0.95
HOUR = 60  # minutes
# With fewer attempts than this in the hour, every one is worth new rates; with more, once in so many seconds will do.
FEW_ATTEMPTS, RATED_EVERY = 100, 1.0
_LOG = log(GROWTH)

Buckets = Mapping[int, int]


class Rates(NamedTuple):
    """Rates of attempts and of executions; None where there were none."""

    success: float | None = None
    execution: float | None = None
    p95: float | None = None
    attempts: int = 0
    refusals: int = 0
    cache_hits: int = 0
    stale_answers: int = 0
    fallbacks: int = 0


def rates_of(minutes: Sequence[Sequence[Any]]) -> Rates:
    """The rates of minutes: each begins with attempts, successes, executions, successful ones and buckets."""
    attempts, successes, executions, successful = (sum(minute[place] for minute in minutes) for place in range(4))
    p95 = percentile(merged(minute[4] for minute in minutes), P95)
    p95 = None if p95 is None else round(p95, 3)
    return Rates(rate(successes, attempts), rate(successful, executions), p95, attempts)


def bucket_of(milliseconds: float) -> int:
    """The bucket that a latency falls into; 0 holds the smallest."""
    if milliseconds < SMALLEST:
        return 0
    return 1 + floor(log(milliseconds / SMALLEST) / _LOG)


def middle_of(bucket: int) -> float:
    """A latency that stands for its bucket: at most 3.5 % from any in it."""
    return SMALLEST * float(GROWTH ** (bucket - 0.5))


def merged(parts: Iterable[Mapping[Any, int] | str]) -> dict[int, int]:
    """The sum of histograms. JSON keeps the numbers of buckets as texts, and SQLite returns it as it is written."""
    total: dict[int, int] = {}
    for part in parts:
        for bucket, count in (json.loads(part) if isinstance(part, str) else part).items():
            total[int(bucket)] = total.get(int(bucket), 0) + count
    return total


def percentile(buckets: Buckets, share: float) -> float | None:
    """The latency that this share of all calls did not exceed; None without calls."""
    wanted = max(1, ceil(share * sum(buckets.values()) - 1e-9))
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return middle_of(bucket)
    return None


def rate(successes: int, attempts: int) -> float | None:
    """The share of successes; None without attempts."""
    return successes / attempts if attempts else None
