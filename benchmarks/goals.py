"""Goals: what was measured beside what it should be, printed, and written to the page of figures.

`docs/explanation/performance.md` has a table for each benchmark, between two marks. With `--write` a run replaces the
tables of what it has measured. Which rows there are, and their goals, is what the code says: a test holds that.
"""

import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "performance.md"
BEGIN, END = "<!-- figures: {} -->\n", "<!-- end of figures -->"
HEAD = ("| what | goal | measured |", "|---|---|---|")


class Figure(NamedTuple):
    """What was measured, None if it was not; and what it should be at least, or at most, None without a goal."""

    what: str
    value: float | None
    goal: float | None = None
    is_least: bool = True
    form: str = "{:.2f} times"

    @property
    def told(self) -> str:
        return "not measured" if self.value is None else self.form.format(self.value)

    @property
    def told_goal(self) -> str:
        if self.goal is None:
            return ""
        return f"{'at least' if self.is_least else 'at most'} {self.form.format(self.goal)}"

    @property
    def verdict(self) -> str:
        if self.value is None or self.goal is None:
            return ""
        return "reached" if (self.value >= self.goal if self.is_least else self.value <= self.goal) else "missed"


def at_most(what: str, value: float | None, goal: float | None, form: str = "{:.2f} times") -> Figure:
    return Figure(what, value, goal, is_least=False, form=form)


def ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def show(figures: Iterable[Figure]) -> None:
    print("\ngoals")
    for one in figures:
        print(f"  {one.what:60} {one.told:>16}  {one.told_goal:26} {one.verdict}")


def save(figures: Iterable[Figure], path: Path) -> None:
    path.write_text(json.dumps([one._asdict() for one in figures]))


def load(path: Path) -> list[Figure]:
    return [Figure(**told) for told in json.loads(path.read_text())]


def write(name: str, figures: Iterable[Figure], page: Path = PAGE) -> None:
    """Replace the table of a benchmark."""
    before, mark, rest = page.read_text().partition(BEGIN.format(name))
    if mark:
        page.write_text(f"{before}{mark}{_table(figures)}{END}{rest.partition(END)[2]}")


def _table(figures: Iterable[Figure]) -> str:
    day, cores = datetime.now(UTC).date(), os.cpu_count()
    about = f"Measured on {day} with {cores} cores ({platform.machine()}), Python {platform.python_version()}:"
    return "".join(f"{line}\n" for line in (about, "", *HEAD, *map(_row, figures)))


def _row(figure: Figure) -> str:
    missed = ", missed" if figure.verdict == "missed" else ""
    return f"| {figure.what} | {figure.told_goal} | {figure.told}{missed} |"


def rows(page: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The tables of a page: each with the name of its benchmark, and what its rows say is measured and aimed at."""
    for name, table in re.findall(rf"{BEGIN.format('([a-z]{1,20})')}(.*?){END}", page, re.DOTALL):
        cells = [line.split("|") for line in table.splitlines() if line.startswith("|") and line not in HEAD]
        yield name, [(what.strip(), goal.strip()) for _, what, goal, *_ in cells]
