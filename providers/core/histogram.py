"""Latencies in buckets that grow by 7 %: small to keep, easy to add up, and exact within the bucket."""

from collections.abc import Iterable, Mapping
from math import ceil, floor, log
from typing import Any

GROWTH = 1.07
SMALLEST = 0.01  # milliseconds; everything below is one bucket
_LOG = log(GROWTH)

Buckets = Mapping[int, int]


def bucket_of(milliseconds: float) -> int:
    """The bucket that a latency falls into; 0 holds the smallest."""
    if milliseconds < SMALLEST:
        return 0
    return 1 + floor(log(milliseconds / SMALLEST) / _LOG)


def middle_of(bucket: int) -> float:
    """A latency that stands for its bucket: at most 3.5 % from any in it."""
    return SMALLEST * float(GROWTH ** (bucket - 0.5))


def merged(parts: Iterable[Mapping[Any, int]]) -> dict[int, int]:
    """The sum of histograms; JSON keeps the numbers of buckets as texts."""
    total: dict[int, int] = {}
    for part in parts:
        for bucket, count in part.items():
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
