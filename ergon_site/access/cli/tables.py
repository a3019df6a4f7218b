"""Tables for people: aligned, as wide as they must be, and never wider than the terminal they are shown on."""

import re
from collections.abc import Iterable
from typing import Any

GAP = "  "
NARROWEST = 12


def table(headings: list[str], rows: Iterable[Iterable[Any]], *, width: int | None = None) -> list[str]:
    """The lines of a table. Numbers are aligned to the right; cells are cut only where a width is given."""
    values = [list(row) for row in rows]
    cells = [[cell_text(value) for value in row] for row in values]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    # Taken from the widest column until the line fits, or until nothing more can be taken.
    while width is not None and sum(widths) + len(GAP) * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    pads = [str.rjust if _is_numeric(row[at] for row in values) else str.ljust for at in range(len(headings))]
    lines = []
    for row in [[heading.upper() for heading in headings], *cells]:
        cut = [cell if len(cell) <= most else f"{cell[: most - 1]}…" for cell, most in zip(row, widths, strict=True)]
        lines.append(GAP.join(pad(cell, most) for pad, cell, most in zip(pads, cut, widths, strict=True)).rstrip())
    return lines


def cell_text(value: Any) -> str:
    """A value as it stands in a cell."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(map(cell_text, value)) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """The text without what could move a terminal's cursor or change its colours."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _is_numeric(column: Iterable[Any]) -> bool:
    """Whether a column holds numbers alone, or counts with more behind them, such as 10,000+."""
    values = [value for value in column if value is not None]
    return bool(values) and all(
        type(value) in {int, float} or (isinstance(value, str) and re.fullmatch(r"[\d,]*\d[\d,]*\+", value))
        for value in values
    )
