"""Rates, times and fills as people read them."""

from datetime import datetime
from typing import Any

from django.utils.html import format_html

from engines.core.explanation import span
from ergon_site.access.lists import unbroken
from providers.admin import links
from providers.models import ProviderExecutionMetric
from providers.reads.health import NEARLY, QuotaStanding

UNKNOWN = "–"
FULL = 100.0
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
    """The used part of a quota, as a bar and in numbers; it changes colour at the warning line."""
    if one is None:
        return format_html('<span class="ergon-why">{}</span>', "no quota")
    kind = "bad" if one.percent >= FULL else "warning" if one.percent >= FULL * NEARLY else "good"
    bar = '<span class="ergon-meter ergon-meter-{}"><span class="ergon-lane" aria-hidden="true">'
    return format_html(
        bar + '<span style="left:0;width:{}%"></span></span><span>{} of {}</span></span>',
        kind,
        f"{min(one.percent, FULL):.1f}",
        f"{one.used:,}",
        f"{one.limit:,}",
    )


def tenant(name: str) -> str:
    """A UUID stays on one line; what is longer breaks."""
    return unbroken(name) if len(name) <= LONGEST_UNBROKEN else name


def away(moment: datetime, now: datetime) -> str:
    return span(max(0.0, (moment - now).total_seconds()))


def attempt(row: ProviderExecutionMetric) -> dict[str, Any]:
    return {"row": row, "address": links.attempt(row.pk), "took": milliseconds(row.duration_ms)}
