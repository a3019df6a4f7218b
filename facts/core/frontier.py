"""The offset up to which the forward buffer is complete."""

from collections.abc import Iterable


def advance(frontier: int, confirmed: Iterable[int]) -> int:
    """The highest offset with no gap below it; -1 before the first. It never goes down."""
    known = {offset for offset in confirmed if offset > frontier}
    while frontier + 1 in known:
        frontier += 1
    return frontier
