from hypothesis import given, strategies as st

from ergon_site.access.core import limits


def admitted(per_second: float, times: list[float]) -> int:
    busy_until, count = 0.0, 0
    for now in times:
        verdict = limits.admit(busy_until, now, per_second)
        busy_until = verdict.busy_until
        count += verdict.is_admitted
    return count


def test_a_burst_of_one_second_passes_and_no_more() -> None:
    assert admitted(10, [100.0] * 50) == 10


def test_a_steady_caller_at_the_rate_is_never_refused() -> None:
    assert admitted(10, [100 + i / 10 for i in range(100)]) == 100


def test_a_rate_below_one_a_second_still_admits_the_first_call() -> None:
    assert admitted(0.1, [100.0, 101.0, 110.0]) == 2


def test_a_first_call_is_admitted_whatever_the_clock_says() -> None:
    # Beyond 4,096 the numbers of a clock lie twice as far apart: a sum that crosses it is rounded.
    assert all(limits.admit(0.0, 3996 + step / 97, 0.01).is_admitted for step in range(9_700))


def test_a_refused_caller_is_told_when_to_come_back() -> None:
    verdict = limits.admit(busy_until=101.0, now=100.0, per_second=10)
    assert not verdict.is_admitted
    assert limits.admit(verdict.busy_until, 100.0 + verdict.retry_after + 1e-9, 10).is_admitted


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 20), max_size=300))
def test_no_window_lets_through_more_than_the_rate_and_a_burst(per_second: float, gaps: list[float]) -> None:
    times = sorted(gaps)
    span = times[-1] - times[0] if times else 0
    assert admitted(per_second, times) <= per_second * (span + max(1, 1 / per_second)) + 1
