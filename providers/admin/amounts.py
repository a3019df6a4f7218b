"""Rates, times and fills as people read them."""

from datetime import datetime

from django.utils.html import format_html

from engines.core.explanation import span
from ergon_site.access.lists import FULL, meter, unbroken
from providers.reads.health import NEARLY, QuotaStanding

UNKNOWN = "–"
SECOND = 1000.0
FEW = 10.0
LONGEST_UNBROKEN = 36


def share(rate: float | None) -> str:
    """A share of one; 99.96 % is not all."""
    return UNKNOWN if rate is None else f"{int(rate * 1000) / 10:.1f} %"


def milliseconds(number: float | None) -> str:
    if number is None:
        return UNKNOWN
    if number >= SECOND:
        return f"{number / SECOND:.3g} s"
    return f"{number:.0f} ms" if number >= FEW or number == 0 else f"{number:.2g} ms"


def quota(one: QuotaStanding | None) -> str:
    """The used part of a quota, as a bar and in numbers."""
    if one is None:
        return format_html('<span class="ergon-why">{}</span>', "no quota")
    return meter(one.percent, f"{one.used:,} of {one.limit:,}", warning=FULL * NEARLY)


def tenant(name: str) -> str:
    """A UUID stays on one line; what is longer breaks."""
    return unbroken(name) if len(name) <= LONGEST_UNBROKEN else name


def away(moment: datetime, now: datetime) -> str:
    """The time until a moment."""
    return f"{span(max(0.0, (moment - now).total_seconds()))}"


def at(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else UNKNOWN
