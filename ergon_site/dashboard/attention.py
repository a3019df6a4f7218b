"""Items that need attention, as the dashboard lists them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

SHOWN_OF_A_KIND = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """Something that waits for a person."""

    title: str
    detail: str
    address: str
    count: int = 1


def capped(concerns: Iterator[Concern], behind: str) -> Iterator[Concern]:
    """The first few of a kind, and a word on the others."""
    yield from islice(concerns, SHOWN_OF_A_KIND)
    if others := sum(1 for _ in concerns):
        yield Concern(title=f"and {others} more like these", detail="", address=behind, count=others)
