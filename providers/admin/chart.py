"""A drawing of the calls in each of the last minutes: what succeeded, failed on top of it, refused above both."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

HEIGHT = 100.0
SLOT = 10
KINDS = ("ok", "bad", "refused")


class Block(NamedTuple):
    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One minute; a little of anything is still to be seen."""

    x: int
    blocks: list[Block]
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    bars: list[Bar]
    width: int
    most: int
    begins_at: datetime
    ends_at: datetime
    sentence: str


def of(series: Sequence[dict[str, Any]]) -> Chart:
    most = max(sum(one[kind] for kind in KINDS) for one in series)
    return Chart(
        bars=[_bar(index, one, most) for index, one in enumerate(series)],
        width=len(series) * SLOT,
        most=most,
        begins_at=series[0]["minute"],
        ends_at=series[-1]["minute"],
        sentence=_sentence(series, most),
    )


def _bar(index: int, one: dict[str, Any], most: int) -> Bar:
    blocks, y = [], HEIGHT
    for kind in KINDS:
        if one[kind]:
            height = max(2.0, round(one[kind] / most * (HEIGHT - 4), 1))
            y -= height
            blocks.append(Block(kind, round(y, 1), height))
    told = f"{one['minute']:%H:%M} UTC: {one['ok']:,} succeeded, {one['bad']:,} failed, {one['refused']:,} refused"
    return Bar(x=index * SLOT, blocks=blocks, told=told)


def _sentence(series: Sequence[dict[str, Any]], most: int) -> str:
    ok, bad, refused = (sum(one[kind] for one in series) for kind in KINDS)
    if not most:
        return f"Nothing was called in the last {len(series)} minutes."
    told = f"{ok:,} attempts succeeded, {bad:,} failed, {refused:,} were refused in the last {len(series)} minutes"
    return f"{told}, at most {most:,} in one minute."
