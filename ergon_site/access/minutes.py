"""A drawing of what happened in each of the last minutes: kind upon kind, a bar for each minute."""

from collections.abc import Mapping, Sequence
from typing import Any

HEIGHT = 100.0
SLOT = 10
LEAST = 2.0


def minute_chart(series: Sequence[Mapping[str, Any]], title: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """From the counts of each minute: `kinds` are their names there, from the ground up, and what to call them."""
    most = max(sum(one[kind] for kind in kinds) for one in series)
    bars = []
    for index, one in enumerate(series):
        blocks, y = [], HEIGHT
        for kind in kinds:
            if one[kind]:
                # Small amounts stay visible.
                height = max(LEAST, round(one[kind] / most * (HEIGHT - LEAST * (len(kinds) - 1)), 1))
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
