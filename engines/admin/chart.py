"""A drawing of what ended in each of the last minutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

HEIGHT = 100
SLOT = 10
BAR = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One minute: failures stand on top of what succeeded. A little of either is still to be seen."""

    x: int
    succeeded: float
    failed: float
    told: str

    @property
    def succeeded_y(self) -> float:
        return HEIGHT - self.succeeded

    @property
    def failed_y(self) -> float:
        return HEIGHT - self.succeeded - self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    bars: list[Bar]
    width: int
    most: int
    begins_at: datetime
    ends_at: datetime
    sentence: str


def of(series: Sequence[dict[str, Any]]) -> Chart:
    most = max(one["ok"] + one["bad"] for one in series)
    return Chart(
        bars=[_bar(index, one, most) for index, one in enumerate(series)],
        width=len(series) * SLOT,
        most=most,
        begins_at=series[0]["minute"],
        ends_at=series[-1]["minute"],
        sentence=_sentence(series, most),
    )


def _bar(index: int, one: dict[str, Any], most: int) -> Bar:
    told = f"{one['minute']:%H:%M} UTC: {one['ok']:,} succeeded, {one['bad']:,} failed"
    return Bar(x=index * SLOT, succeeded=_height(one["ok"], most), failed=_height(one["bad"], most), told=told)


def _height(count: int, most: int) -> float:
    return max(2.0, round(count / most * (HEIGHT - 2), 1)) if count else 0.0


def _sentence(series: Sequence[dict[str, Any]], most: int) -> str:
    succeeded, failed = sum(one["ok"] for one in series), sum(one["bad"] for one in series)
    if not succeeded + failed:
        return f"Nothing ended in the last {len(series)} minutes."
    ended = f"{succeeded:,} succeeded and {failed:,} failed in the last {len(series)} minutes"
    return f"{ended}, at most {most:,} in one minute."
