"""Attempts on a line of time."""

from hypothesis import given, strategies as st

from engines.core.attempt import NARROWEST, Bar, bars


def test_bars_lie_where_their_time_was() -> None:
    assert bars([(100.0, 2.0), (104.0, 6.0)]) == [Bar(0.0, 20.0), Bar(40.0, 60.0)]


def test_nothing_draws_nothing() -> None:
    assert bars([]) == []


def test_attempts_that_took_no_time_fill_the_line() -> None:
    assert bars([(5.0, 0.0)]) == [Bar(0.0, 100.0)]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), min_size=1))
def test_every_bar_can_be_seen_and_none_sticks_out(spans: list[tuple[float, float]]) -> None:
    for bar in bars(spans):
        assert bar.width >= NARROWEST
        assert bar.left >= 0
        assert bar.left + bar.width <= 100.02
