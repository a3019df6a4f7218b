"""When a task comes back."""

import pytest

from providers.core.retry import countdown


@pytest.mark.parametrize(
    ("wait", "returns", "chance", "expected"),
    [
        (10.0, 0, 0.0, 10.0),
        (10.0, 9, 1.0, 11.0),
        (0.0, 0, 0.0, 0.1),
        (10_000.0, 0, 1.0, 900.0),
        (None, 0, 0.0, 1.0),
        (None, 3, 0.0, 8.0),
        (None, 500, 0.0, 60.0),
    ],
)
def test_it_waits_as_long_as_it_was_told_or_longer_each_time(
    wait: float | None, returns: int, chance: float, expected: float
) -> None:
    found = countdown(wait, returns=returns, longest=900.0, random=lambda: chance)
    assert found == pytest.approx(expected)
