"""Durations in buckets, and what a chart says of them."""

import pytest

from engines.core.histogram import BOUNDS, COLUMNS, counted, percentile


def test_a_duration_is_counted_below_the_first_bound_that_it_does_not_reach() -> None:
    assert len(counted([])) == len(COLUMNS) == len(BOUNDS) + 1
    assert set(counted([])) == {0}
    assert [place for place, count in enumerate(counted([0.0, 0.001, 0.0024, 299.9, 300.0, 1e9])) if count] == [
        0,
        1,
        15,
        16,
    ]
    assert counted([0.001, 0.0024])[1] == 2


@pytest.mark.parametrize(
    ("durations", "share", "expected"),
    [
        ([], 0.5, None),
        ([0.2], 0.5, 0.2),  # alone in its bucket: the longest is known exactly
        ([0.0, 0.0], 0.95, 0.0),
        ([0.02] * 10, 0.5, 0.015),  # half of the way from 10 ms to the longest
        ([0.02] * 99 + [7.0], 0.5, pytest.approx(0.0176, rel=0.01)),
        ([0.02] * 99 + [7.0], 0.95, pytest.approx(0.0244, rel=0.01)),
        ([0.02] * 9 + [7.0], 0.95, 7.0),
        ([400.0, 500.0], 1.0, 500.0),  # above the last bound
    ],
)
def test_percentiles_are_estimated_within_their_bucket(
    durations: list[float], share: float, expected: float | None
) -> None:
    assert percentile(counted(durations), max(durations, default=0.0), share) == expected


def test_a_longest_that_an_older_worker_did_not_count_never_bounds_below_zero() -> None:
    assert percentile(counted([0.2, 0.2]), 0.05, 0.5) == 0.05
