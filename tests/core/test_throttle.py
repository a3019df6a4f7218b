"""When a process notifies: at once while that is quick, for several at once where it takes long."""

import pytest

from engines.core.throttle import CALM, LEAST_SHARE, LONGEST, SHARE, SHORTEST, Throttle


def after(*took: float) -> Throttle:
    """A throttle of a busy process that has sent notifications at time 0, which took so long."""
    throttle = Throttle()
    throttle.is_due(0, 0)
    for seconds in took:
        throttle.begin(0)
        throttle.end(seconds)
    throttle.begin(0)
    return throttle


@pytest.mark.parametrize(
    ("took", "now", "is_due"),
    [
        ([], SHORTEST / 2, False),
        ([], SHORTEST, True),
        ([0.0001] * 20, SHORTEST, True),
        ([0.0005] * 20, SHORTEST, False),
        ([0.0005] * 20, 0.0005 * SHARE, True),
        ([0.0005] * 20 + [1.0], 0.0005 * SHARE, False),
        ([0.005] * 20, LONGEST, False),
        ([0.005] * 20, LONGEST + CALM / 2, False),
        ([0.005] * 20, LONGEST + CALM * 2, True),
    ],
)
def test_the_longer_notifications_take_the_further_apart_they_are(took: list[float], now: float, is_due: bool) -> None:  # noqa: FBT001
    assert after(*took).is_due(now, now) is is_due


def test_the_first_notification_is_sent_at_once() -> None:
    assert Throttle().is_due(0.0, 1.0)


@pytest.mark.parametrize(
    ("now", "took", "is_due"),
    [(0.02, 0.005, True), (0.02, 0.015, False), (SHORTEST / 2, 0.0001, False), (SHORTEST, 0.0001, True)],
)
def test_where_submitting_takes_less_than_half_of_the_time_each_submission_notifies(
    now: float,
    took: float,
    is_due: bool,  # noqa: FBT001
) -> None:
    assert after(*[0.005] * 20).is_due(now, took) is is_due


@pytest.mark.parametrize(
    ("took", "next_at"),
    [([], SHORTEST), ([0.0005] * 40, 0.0005 * SHARE), ([0.005] * 40, LONGEST), ([0.05] * 40, 0.05 * LEAST_SHARE)],
)
def test_what_is_put_off_is_sent_as_soon_as_it_may_be(took: list[float], next_at: float) -> None:
    assert after(*took).next_at == pytest.approx(next_at, abs=1e-3)
