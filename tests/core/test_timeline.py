"""Events on a line of time."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, strategies as st

from ergon_site.access.core.timeline import MERGED, NARROWEST, Bar, Event, Timeline, bars, merge

MIDNIGHT = datetime(2026, 11, 17, tzinfo=UTC)


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


def happened(second: int, **fields: Any) -> Event:
    return Event(at=MIDNIGHT + timedelta(seconds=second), kind="test", title=f"at {second}", **fields)


def test_events_of_all_sources_are_told_in_the_order_of_time() -> None:
    merged = merge([happened(4, duration=6.0), happened(1)], [happened(0), happened(3)])
    assert [line.event.title for line in merged.lines] == ["at 0", "at 1", "at 3", "at 4"]
    assert [line.after for line in merged.lines] == [0.0, 1.0, 3.0, 4.0]
    assert merged.lines[-1].bar == Bar(40.0, 60.0)
    assert (merged.hidden, merged.is_capped) == (0, False)


def test_of_too_many_events_the_first_and_the_newest_are_shown() -> None:
    merged = merge([happened(second) for second in range(10)], left_out=5, shown=4)
    assert [line.event.title for line in merged.lines] == ["at 0", "at 7", "at 8", "at 9"]
    assert merged.hidden == 11


def test_a_source_that_has_more_than_was_read_says_so() -> None:
    assert merge([happened(second) for second in range(MERGED + 1)]).is_capped
    assert merge() == Timeline([])
