"""Durations as people say them."""

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


def span(seconds: float) -> str:
    """A duration in one unit, rounded: how long ago, how long still."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.0f} h"
    return f"{seconds / DAY:.0f} days"


def exact_span(seconds: float) -> str:
    """A duration in the two units that read best: limits and delays that somebody has set."""
    if seconds >= 100 * YEAR:
        return "forever"
    if seconds >= DAY:
        return f"{seconds // DAY:.0f} d {seconds % DAY // HOUR:.0f} h".removesuffix(" 0 h")
    if seconds >= HOUR:
        return f"{seconds // HOUR:.0f} h {seconds % HOUR // MINUTE:.0f} min".removesuffix(" 0 min")
    if seconds >= MINUTE:
        return f"{seconds // MINUTE:.0f} min {seconds % MINUTE:.3g} s".removesuffix(" 0 s")
    return f"{seconds:.4g} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.4g} ms"
