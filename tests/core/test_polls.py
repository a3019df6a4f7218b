"""Promises of the looks that are made for all waiting loops of a process."""

import math
from itertools import pairwise

from hypothesis import given, strategies as st

from engines.core.pacing import LEAST, Polls


def expecting(*keys: int, wait: float = 0.1, growth: float = 2.0, most: float = 1.0) -> Polls:
    polls = Polls()
    for key in keys:
        polls.expect(key, 0.0, wait, growth=growth, most=most)
    return polls


def test_nobody_is_looked_for_before_the_time_has_come() -> None:
    polls = expecting(7)
    assert (polls.take(0.09), polls.next_at(), polls.take(0.1)) == ([], 0.1, [7])


def test_the_waits_grow_to_the_longest() -> None:
    polls, looks, now = expecting(7), [0.0], 0.0
    while len(looks) < 7:
        now = polls.next_at()
        assert polls.take(now) == [7]
        looks.append(now)
    assert [round(after - before, 6) for before, after in pairwise(looks)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_wait_of_nothing_is_a_short_one() -> None:
    assert expecting(7, wait=0.0).next_at() == LEAST
    polls = expecting(7, wait=0.0)
    polls.take(LEAST)
    assert polls.next_at() == 3 * LEAST


def test_a_first_wait_is_no_longer_than_the_longest() -> None:
    assert expecting(7, wait=5.0, most=0.25).next_at() == 0.25


def test_who_has_waited_for_half_of_the_time_is_looked_at_with_the_others() -> None:
    polls = expecting(1, wait=0.2)
    polls.expect(2, 0.0, 0.4, growth=1.0, most=math.inf)
    polls.expect(3, 0.0, 0.5, growth=1.0, most=math.inf)
    assert polls.take(0.2) == [1, 2]


def test_nobody_is_looked_for_who_does_not_wait_any_more() -> None:
    polls = expecting(1, 2)
    polls.end(1)
    polls.end(3)
    assert (1 in polls, 2 in polls, polls.take(1.0)) == (False, True, [2])
    polls.end(2)
    assert (polls.next_at(), polls.take(9.0)) == (math.inf, [])


def test_all_can_be_looked_for_at_once() -> None:
    polls = expecting(1, 2, wait=1.0)
    polls.hurry()
    assert polls.take(0.01) == [1, 2]
    assert polls.next_at() == 1.01


@given(st.lists(st.floats(0, 20), min_size=1, max_size=50))
def test_many_that_wait_are_soon_looked_for_together(began: list[float]) -> None:
    polls = Polls()
    for key, at in enumerate(began):
        polls.expect(key, at, 0.1, growth=2.0, most=1.0)
    while (now := polls.next_at()) < 30:
        polls.take(now)
    looks = 0
    while (now := polls.next_at()) < 40:
        assert polls.take(now) == list(range(len(began)))
        looks += 1
    assert looks in {10, 11}


def test_a_moment_at_which_there_is_work_comes_before_the_next_look() -> None:
    polls = Polls()
    polls.expect_by(7, 0.5)
    assert polls.next_at() == math.inf, "nobody waits"
    polls.expect(7, 0.0, 5.0, growth=2.0, most=60.0)
    polls.expect_by(7, 0.5)
    polls.expect_by(7, 3.0)
    assert polls.next_at() == 0.5
    assert polls.take(0.5) == [7]
    assert polls.next_at() == 10.5


def test_an_urgent_look_is_made_very_soon_and_the_next_ones_after_the_usual_wait() -> None:
    polls = Polls()
    assert polls.expect(7, 10.0, 5.0, growth=1.0, most=60.0, is_urgent=True) == 10.0 + LEAST
    assert polls.take(10.0 + LEAST) == [7]
    assert polls.next_at() == 15.0 + LEAST
