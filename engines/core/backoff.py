"""How long to wait before trying again."""

import math
import sys

LONGEST = sys.float_info.max


def exponential(retry: int, *, backoff: float, multiplier: float, cap: float) -> float:
    """`backoff * multiplier**retry`, at most `cap` unless that is 0; `retry` 0 is the wait after the first failure."""
    if backoff == 0:
        return 0.0
    try:
        delay = backoff * float(multiplier) ** retry
    except OverflowError:
        delay = LONGEST
    # The delay is clamped, not the exponent: operators expect the cap itself to be reached.
    return min(delay, cap) if cap > 0 else min(delay, LONGEST)


def is_duration(seconds: object) -> bool:
    """A number of seconds: finite and not negative."""
    return (
        isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds) and seconds >= 0
    )
