"""Small charts as numbers for SVG: templates only write them down."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

WIDTH, HEIGHT = 100.0, 30.0


class Column(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Columns or lines in a box of `WIDTH` by `HEIGHT`, with what a reader of text needs."""

    title: str
    kind: str
    summary: str
    top: str
    columns: Sequence[Column] = ()
    lines: Sequence[tuple[str, str]] = ()


def columns(values: Sequence[float], titles: Sequence[str] = ()) -> list[Column]:
    """A column for each value, as high as its share of the highest."""
    top = max(values, default=0) or 1
    step = WIDTH / max(len(values), 1)
    told = titles or [""] * len(values)
    return [
        Column(round(place * step, 2), round(HEIGHT - height, 2), round(step * 0.8, 2), round(height, 2), title)
        for place, (value, title) in enumerate(zip(values, told, strict=True))
        if (height := max(HEIGHT * value / top, 0.8 if value else 0.0))
    ]


def line(values: Sequence[float | None], top: float) -> str:
    """The path of a line over the same box; where there is no value the line is broken."""
    step = WIDTH / max(len(values), 1)
    path, is_down = [], False
    for place, value in enumerate(values):
        if value is None:
            is_down = False
            continue
        x, y = (place + 0.5) * step, HEIGHT - HEIGHT * value / (top or 1)
        path.append(f"{'L' if is_down else 'M'}{x:.2f} {y:.2f}")
        # A value that stands alone would draw nothing: a line without length draws its round ends.
        path += [] if is_down else [f"L{x:.2f} {y:.2f}"]
        is_down = True
    return " ".join(path)
