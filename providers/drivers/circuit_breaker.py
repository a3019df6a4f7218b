"""A circuit breaker in memory."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from providers.core.breaker import Breaker, BreakerPolicy, BreakerState, Permit, verdict_of
from providers.core.errors import ProviderCircuitOpenError


class CircuitBreaker:
    """A breaker of this process alone, for use without a database; `ProviderBase` shares one among all processes.

    Fields of a policy may be given by their names, instead of a policy or to change one.
    """

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        *,
        count_rate_limited: bool = False,
        clock: Callable[[], float] = time.monotonic,
        probe_lease: float = 60.0,
        **fields: Any,
    ) -> None:
        self.policy = replace(policy or BreakerPolicy(), **fields)
        self.failure_threshold = self.policy.failure_threshold
        self.open_cooldown_seconds = self.policy.open_cooldown_seconds
        self.half_open_max_calls = self.policy.half_open_max_calls
        self.success_threshold = self.policy.success_threshold
        self.count_rate_limited = count_rate_limited
        self._clock = clock
        self._lease = probe_lease
        self._breaker = Breaker()
        self._admitted = 0
        self._lock = threading.Lock()

    @property
    def state(self) -> BreakerState:
        return self._breaker.state_at(self._clock())

    @property
    def generation(self) -> int:
        return self._breaker.generation

    @property
    def consecutive_failures(self) -> int:
        return self._breaker.consecutive_failures

    @property
    def open_until(self) -> float | None:
        return self._breaker.open_until

    def before_call(self) -> Permit:
        """The right to call, or `ProviderCircuitOpenError`."""
        with self._lock:
            now = self._clock()
            if self._breaker.refuses(self.policy, now):
                wait = max(0.0, self._breaker.reopens_at(now) - now)
                raise ProviderCircuitOpenError(retry_after=wait, never_left=True)
            self._admitted += 1
            self._breaker, permit = self._breaker.admit(now, str(self._admitted), self._lease)
            return permit

    def after_call(self, permit: Permit | None = None, *, error: BaseException | None = None) -> None:
        """Take in how the call came out: None is a success. Without a permit it counts for the present generation."""
        verdict = verdict_of(error, count_rate_limited=self.count_rate_limited)
        with self._lock:
            given = permit or Permit(self._breaker.generation, next(iter(self._breaker.probes), None))
            self._breaker = self._breaker.settle(given, verdict, self.policy, self._clock())
