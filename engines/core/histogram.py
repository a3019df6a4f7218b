"""How long transactions took, counted in fixed buckets: what a minute keeps of thousands of durations."""

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil

# Seconds. A bucket ends below its bound; the last one has none.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
COLUMNS = tuple(f"took_{place}" for place in range(len(BOUNDS) + 1))


def counted(durations: Sequence[float]) -> list[int]:
    """The number of durations in each bucket."""
    counts = [0] * len(COLUMNS)
    for duration in durations:
        counts[bisect_right(BOUNDS, duration)] += 1
    return counts


def percentile(counts: Sequence[int], longest: float, share: float) -> float | None:
    """A duration that this share of all did not exceed, estimated within its bucket; None if none was counted."""
    wanted, seen = max(1, ceil(share * sum(counts) - 1e-9)), 0
    for place, count in enumerate(counts):
        if count and seen + count >= wanted:
            lower = BOUNDS[place - 1] if place else 0.0
            upper = min(BOUNDS[place], longest) if place < len(BOUNDS) else longest
            # The durations of a bucket are taken to be spread evenly over it.
            return min(longest, lower + max(0.0, upper - lower) * (wanted - seen) / count)
        seen += count
    return None
