"""When a process notifies: of each transaction while it has time for that, now and then in a burst."""

import pytest

from engines.core.pacing import APART, GLANCE, REPEAT, WATCH, Throttle

ORDERS, MAIL = 1, 2


def after_a_burst() -> Throttle:
    """A throttle that has notified of a burst of orders at time 0."""
    throttle = Throttle()
    throttle.is_burst(0.0, 1.0)
    throttle.sending(0.0, ORDERS, is_burst=True)
    return throttle


@pytest.mark.parametrize(
    ("now", "took", "is_burst"),
    [(0.02, 0.005, False), (0.02, 0.011, True), (0.02, 0.05, True), (0.0001, 0.0, False)],
)
def test_a_process_that_submits_for_more_than_half_of_its_time_is_in_a_burst(
    now: float,
    took: float,
    is_burst: bool,  # noqa: FBT001
) -> None:
    assert after_a_burst().is_burst(now, took) is is_burst


def test_the_first_submission_is_none_however_long_it_took() -> None:
    assert not Throttle().is_burst(0.0, 1.0)


def test_each_submission_notifies_but_not_twice_at_once() -> None:
    throttle = Throttle()
    assert throttle.due_at(ORDERS, is_burst=False) < 0
    throttle.sending(0.0, ORDERS, is_burst=False)
    assert throttle.due_at(ORDERS, is_burst=False) == APART
    assert throttle.due_at(ORDERS, is_burst=True) == APART


def test_workers_who_were_told_of_a_burst_are_told_again_before_they_stop_looking() -> None:
    assert after_a_burst().due_at(ORDERS, is_burst=True) == REPEAT
    assert REPEAT + GLANCE < WATCH / 2


def test_a_burst_in_one_pipeline_holds_back_no_other() -> None:
    assert after_a_burst().due_at(MAIL, is_burst=True) == APART


def test_a_lone_transaction_after_a_burst_is_told_of_at_once() -> None:
    assert after_a_burst().due_at(ORDERS, is_burst=False) == APART
