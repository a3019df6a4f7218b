"""Retries on their own, with a clock that only sleeping moves."""

import pytest

from providers.core.errors import ProviderBadRequestError, ProviderRateLimitError, ProviderTimeoutError
from providers.core.retry import RetryPolicy

POLICY = RetryPolicy(max_attempts=3, base_delay_seconds=1, max_delay_seconds=2, jitter_ratio=0)


class Script:
    """A call that fails as often as it is told, and the clock beside it."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.now = 0.0

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("errors", "budget", "tried", "waited", "is_ok"),
    [
        ([], None, 1, 0.0, True),
        ([TimeoutError()], None, 2, 1.0, True),
        ([TimeoutError()] * 9, None, 3, 3.0, False),
        ([ProviderBadRequestError()], None, 1, 0.0, False),
        ([TimeoutError()] * 9, 2.5, 2, 1.0, False),
        ([ProviderRateLimitError(retry_after=7)], None, 2, 7.0, True),
        ([ProviderRateLimitError(retry_after=7)], 7.0, 1, 0.0, False),
        ([ProviderRateLimitError(retry_after=86400)], None, 2, 300.0, True),
    ],
)
def test_a_call_is_tried_while_it_can_help(
    errors: list[Exception],
    budget: float | None,
    tried: int,
    waited: float,
    is_ok: bool,  # noqa: FBT001
) -> None:
    script = Script(*errors)
    tries = POLICY.run(script, budget=budget, clock=script.clock, sleep=script.sleep)
    assert (len(tries.attempts), script.now, tries.ok) == (tried, waited, is_ok)


def test_a_pause_is_granted_as_far_as_it_is_said() -> None:
    script = Script(ProviderRateLimitError(retry_after=86400))
    tries = POLICY.run(script, retry_after_ceiling=20, clock=script.clock, sleep=script.sleep)
    assert (tries.ok, script.now) == (True, 20)


def test_a_failure_is_raised_on_request() -> None:
    script = Script(*[TimeoutError()] * 3)
    with pytest.raises(ProviderTimeoutError):
        POLICY.run(script, clock=script.clock, sleep=script.sleep).raise_for_failure()
    POLICY.run(Script()).raise_for_failure()
