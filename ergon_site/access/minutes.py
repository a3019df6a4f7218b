"""A drawing of what happened in each of the last minutes: kind upon kind, a bar for each minute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

HEIGHT = 100.0
SLOT = 10
LEAST = 2.0


class Block(NamedTuple):
    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A minute of the chart; small amounts stay visible."""

    x: int
    blocks: list[Block]
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    kinds: Mapping[str, str]
    bars: list[Bar]
    width: int
    most: int
    begins_at: datetime
    ends_at: datetime
    sentence: str


def minute_chart(series: Sequence[Mapping[str, Any]], title: str, kinds: Mapping[str, str]) -> Chart:
    """From the counts of each minute: `kinds` are their names there, from the ground up, and what to call them."""
    most = max(sum(one[kind] for kind in kinds) for one in series)
    return Chart(
        title=title,
        kinds=kinds,
        bars=[_bar(index * SLOT, one, kinds, most) for index, one in enumerate(series)],
        width=len(series) * SLOT,
        most=most,
        begins_at=series[0]["minute"],
        ends_at=series[-1]["minute"],
        sentence=_sentence(series, kinds, most),
    )


def _bar(x: int, one: Mapping[str, Any], kinds: Mapping[str, str], most: int) -> Bar:
    blocks, y = [], HEIGHT
    for kind in kinds:
        if one[kind]:
            height = max(LEAST, round(one[kind] / most * (HEIGHT - LEAST * (len(kinds) - 1)), 1))
            y -= height
            blocks.append(Block(kind, round(y, 1), height))
    return Bar(x=x, blocks=blocks, told=f"{one['minute']:%H:%M} UTC: {_counts([one], kinds)}")


def _sentence(series: Sequence[Mapping[str, Any]], kinds: Mapping[str, str], most: int) -> str:
    time = f"in the last {len(series)} minutes"
    return f"{_counts(series, kinds)} {time}, at most {most:,} in one minute." if most else f"Nothing {time}."


def _counts(series: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{sum(one[kind] for one in series):,} {word}" for kind, word in kinds.items())
