"""Sparklines as numbers for SVG: the template only writes them down."""

from collections.abc import Sequence
from typing import NamedTuple

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 100.0, 30.0


class Column(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def columns(values: Sequence[float]) -> list[Column]:
    """A column for each value, as high as its share of the highest."""
    top = max(values, default=0) or 1
    step = WIDTH / max(len(values), 1)
    return [
        Column(round(place * step, 2), round(HEIGHT - height, 2), round(step * 0.8, 2), round(height, 2))
        for place, value in enumerate(values)
        if (height := max(HEIGHT * value / top, 0.8 if value else 0.0))
    ]


def sparkline(values: Sequence[float], label: str, *, kind: str = "") -> SafeString:
    """The values as small columns; the label is for those who do not see them."""
    shown = {"columns": columns(values), "label": label, "kind": kind}
    return SafeString(render_to_string("console/sparkline.html", shown))
