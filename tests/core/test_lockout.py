"""When a login is refused."""

import pytest

from ergon_site.access.core import limits
from ergon_site.access.core.limits import Count, Counter


@pytest.mark.parametrize(
    ("counter", "attempts", "seconds"),
    [
        (Counter.PAIR, 10, 0.0),
        (Counter.PAIR, 11, 60.0),
        (Counter.ACCOUNT, 50, 0.0),
        (Counter.ACCOUNT, 51, 60.0),
        (Counter.ADDRESS, 100, 0.0),
        (Counter.ADDRESS, 101, 60.0),
    ],
)
def test_a_login_waits_until_too_many_failures_are_forgotten(counter: Counter, attempts: int, seconds: float) -> None:
    assert limits.wait(Count(counter, attempts, 60.0), failures=10) == seconds
