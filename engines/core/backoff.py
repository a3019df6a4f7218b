"""Delays between attempts."""

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
    """A number of seconds: not negative, and one that a clock can count to."""
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= LONGEST
