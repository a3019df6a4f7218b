"""Small charts as numbers for SVG: templates only write them down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

WIDTH, HEIGHT = 100.0, 30.0
# Of a chart of minutes: its height, the width of a minute, and the height that no amount is below.
TALL, SLOT, LEAST = 100.0, 10, 2.0


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


def minute_chart(series: Sequence[Mapping[str, Any]], title: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """A bar for each minute, kind upon kind: `kinds` names the counts, from the ground up, and what to call them."""
    most = max(sum(one[kind] for kind in kinds) for one in series)
    bars = []
    for index, one in enumerate(series):
        blocks, y = [], TALL
        for kind in kinds:
            if one[kind]:
                # Small amounts stay visible.
                height = max(LEAST, round(one[kind] / most * (TALL - LEAST * (len(kinds) - 1)), 1))
                y -= height
                blocks.append({"kind": kind, "y": round(y, 1), "height": height})
        bars.append(
            {"x": index * SLOT, "blocks": blocks, "told": f"{one['minute']:%H:%M} UTC: {_counts([one], kinds)}"}
        )
    time = f"in the last {len(series)} minutes"
    return {
        "title": title,
        "kinds": kinds,
        "bars": bars,
        "width": len(series) * SLOT,
        "most": most,
        "begins_at": series[0]["minute"],
        "ends_at": series[-1]["minute"],
        "sentence": f"{_counts(series, kinds)} {time}, at most {most:,} in one minute." if most else f"Nothing {time}.",
    }


def _counts(series: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{sum(one[kind] for one in series):,} {word}" for kind, word in kinds.items())
