"""Runs contenders in turns, and keeps what they did."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping

Contender = Callable[[], Mapping[str, float]]


class Figures:
    """Figures by contender and kind, one of each for every round."""

    def __init__(self) -> None:
        self._kept: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    def keep(self, name: str, told: Mapping[str, float]) -> None:
        for kind, figure in told.items():
            self._kept[name, kind].append(figure)

    def median(self, name: str, kind: str) -> float | None:
        kept = self._kept.get((name, kind))
        return statistics.median(kept) if kept else None

    def spread(self, name: str, kind: str) -> tuple[float, float]:
        kept = self._kept[name, kind]
        return min(kept), max(kept)

    def names(self, kind: str) -> list[str]:
        return list(dict.fromkeys(name for name, known in self._kept if known == kind))


def measure(contenders: Mapping[str, Contender], figures: Figures, rounds: int) -> None:
    for number in range(1, rounds + 1):
        for name, run in contenders.items():
            told = run()
            figures.keep(name, told)
            print(f"  round {number} of {rounds}: {name}", *(f"{kind} {told[kind]:,.1f}" for kind in told), flush=True)


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50": ordered[len(ordered) // 2] * 1000, "p99": ordered[len(ordered) * 99 // 100] * 1000}
