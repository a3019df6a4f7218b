"""Cells of lists and figures of pages: texts, states, links, bars, sizes and times as people read them."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import mark_safe
from unfold.decorators import display

from ergon_site.access.console.states import tag as tag  # noqa: PLC0414 (a cell like those below)
from ergon_site.access.core.durations import exact_span

LONGEST_TITLE = 500
LONGEST_ID, ID_START, ID_END = 36, 20, 12
FULL = 100.0
UNKNOWN = "–"
UNITS = ("KiB", "MiB", "GiB", "TiB")
STEP = 1024
SECOND = 1000.0
LONG = 1000 * SECOND
FEW = 10.0


def column(description: str, value: Callable[[Any], object], **options: Any) -> Any:
    """A column of a list: its heading, and what it shows of a row."""

    @display(description=description, **options)
    def shown(_: Any, row: Any) -> object:
        found = value(row)
        return moment(found) if isinstance(found, datetime) else found

    return shown


def words(text: str) -> str:
    """A longer text in a column: wrapped, and cut after two lines."""
    return format_html('<span class="ergon-words" title="{}">{}</span>', text[:LONGEST_TITLE], text[:LONGEST_TITLE])


def two_lines(text: object, small: object) -> str:
    """A column with a smaller line below."""
    both = '<span class="ergon-two"><span title="{}">{}</span><span class="ergon-small">{}</span></span>'
    return format_html(both, text, text, small)


def identifier(text: str) -> str:
    """An id. One that is longer than a UUID is shortened in the middle; pointed at and copied it is whole."""
    if len(text) <= LONGEST_ID:
        return format_html('<span class="ergon-id">{}</span>', text)
    return format_html('<span class="ergon-id" title="{}">{}…{}</span>', text, text[:ID_START], text[-ID_END:])


def unbroken(text: object) -> str:
    """A word that stays on one line."""
    return format_html('<span class="ergon-when">{}</span>', text)


def measured(text: str) -> str:
    """A number with its unit, on one line; on a narrow screen with its heading."""
    return text if text == UNKNOWN else format_html('<span class="ergon-when ergon-measured">{}</span>', text)


def moment(at: datetime) -> str:
    """A time: read as how long ago or ahead, with the exact one on hover; without a script the exact one, in UTC."""
    utc = at.astimezone(UTC)
    day, clock = f"{utc:%Y-%m-%d}", f"{utc:%H:%M:%S}"
    text = f'<time class="ergon-when" datetime="{day}T{clock}Z" data-ago>{day} {clock}</time>'
    return mark_safe(text)  # noqa: S308 (digits)


def anchor(address: str, text: object) -> str:
    return format_html('<a class="ergon-link" href="{}">{}</a>', address, text)


def meter(percent: float, text: str, *, warning: float) -> str:
    """A bar of how full something is, and a text beside it; it changes colour at the warning line."""
    kind = "bad" if percent >= FULL else "warning" if percent >= warning else "good"
    bar = '<span class="ergon-meter ergon-meter-{}"><span class="ergon-lane" aria-hidden="true">'
    whole = bar + '<span style="left:0;width:{}%"></span></span><span>{}</span></span>'
    return format_html(whole, kind, f"{min(percent, FULL):.1f}", text)


def note(text: str) -> str:
    """A remark in smaller and paler letters."""
    return format_html('<span class="ergon-why">{}</span>', text)


def with_note(cell: str, text: str) -> str:
    """A column with a remark below."""
    return format_html('<div class="ergon-cell">{}<div class="ergon-why">{}</div></div>', cell, text)


def beyond(text: str) -> str:
    """A number that is beyond its warning line."""
    return format_html('<span class="ergon-beyond">{}</span>', text)


def percentage(number: float) -> str:
    """A percentage, never rounded up: 79.96 is not 80, and 99.96 is not all."""
    # 28.999999999999996 is 29: what a float is not exact by is no part of it.
    return f"{int(round(10 * number, 6)) / 10:.1f} %"


def size(number: int) -> str:
    """A number of bytes in the unit that reads best."""
    if number < STEP:
        return f"{number:,} byte{'' if number == 1 else 's'}"
    power = min(int(math.log(number, STEP)), len(UNITS))
    return f"{number / STEP**power:.1f} {UNITS[power - 1]}"


def milliseconds(number: float | None) -> str:
    """A measured time, with as many digits as it is good for."""
    if number is None:
        return UNKNOWN
    if number >= LONG:
        return exact_span(number / SECOND)
    if number >= SECOND:
        return f"{number / SECOND:.3g} s"
    return f"{number:.0f} ms" if number >= FEW or number == 0 else f"{number:.2g} ms"
