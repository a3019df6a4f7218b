"""When a rescheduled task runs again."""

from engines.core import backoff
from providers.core.retry import Random

FIRST, LONGEST = 1.0, 60.0
SPREAD = 0.1


def countdown(wait: float | None, *, returns: int, longest: float, random: Random) -> float:
    """The seconds until a task comes back: as long as it was told to wait, or a little longer each time.

    Chance spreads those who wait for the same moment. Nobody stays away for longer than `longest`, after which a broker
    would take the task for lost: it comes back, and is sent away again.
    """
    if wait is None:
        wait = backoff.exponential(returns, backoff=FIRST, multiplier=2.0, cap=LONGEST)
    return min(max(wait, SPREAD), longest / (1 + SPREAD)) * (1 + SPREAD * random())
