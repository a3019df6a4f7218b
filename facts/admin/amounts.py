"""Spans of time, sizes and fills as people read them."""

import math

from django.utils.html import format_html

from ergon_site.access import lists
from facts.core.watching import FILL

UNITS = ("KiB", "MiB", "GiB", "TiB")
STEP = 1024
UNKNOWN = "–"


def span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"  # noqa: PLR2004


def size(number: int) -> str:
    if number < STEP:
        return f"{number:,} bytes"
    power = min(int(math.log(number, STEP)), len(UNITS))
    return f"{number / STEP**power:.1f} {UNITS[power - 1]}"


def meter(percent: float | None) -> str:
    """How full something is, as a bar and a number."""
    if percent is None:
        return format_html('<span class="ergon-why">{}</span>', "no limit")
    return lists.meter(percent, percent_text(percent), warning=FILL)


def beyond(text: str) -> str:
    """A number that is beyond its warning line."""
    return format_html('<span class="ergon-beyond">{}</span>', text)


def percent_text(percent: float | None) -> str:
    if percent is None:
        return UNKNOWN
    # 79.96 is not 80, and 99.96 is not full.
    return f"{int(percent * 10) / 10:.1f} %"
