"""The rate limit of a client: a steady rate with a burst of one second, kept as a single number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a call may pass; `busy_until` is what to remember either way."""

    busy_until: float
    retry_after: float = 0.0

    @property
    def is_admitted(self) -> bool:
        return self.retry_after == 0


def admit(busy_until: float, now: float, per_second: float) -> Verdict:
    """Each call keeps the client busy for 1/rate seconds; one that is busy for too long has to wait."""
    interval = 1 / per_second
    burst = max(1.0, interval)
    # Without the clock's large numbers: the rounding of a sum with them would refuse a first call now and then.
    ahead = max(busy_until - now, 0.0)
    excess = ahead + interval - burst
    if excess > 0:
        return Verdict(busy_until=busy_until, retry_after=excess)
    return Verdict(busy_until=now + ahead + interval)
