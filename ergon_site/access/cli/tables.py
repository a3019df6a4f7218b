"""Tables for people: aligned, as wide as they must be, and never wider than the terminal they are shown on."""

import shutil
from collections.abc import Iterable
from typing import Any

GAP = "  "
NARROWEST = 12


def table(headings: list[str], rows: Iterable[Iterable[Any]], *, width: int | None = None) -> list[str]:
    """The lines of a table. Numbers are aligned to the right; cells are cut only where a width is given."""
    values = [list(row) for row in rows]
    cells = [[cell_text(value) for value in row] for row in values]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if width is not None:
        _squeeze(widths, width)
    to_right = [_is_numeric([row[index] for row in values]) for index in range(len(headings))]
    return [_line(row, widths, to_right) for row in [[heading.upper() for heading in headings], *cells]]


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
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def width_of(stream: Any) -> int | None:
    """The width of a terminal; None for anything else, which is never truncated."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def _squeeze(widths: list[int], width: int) -> None:
    """Take from the widest column until the line fits, or until nothing more can be taken."""
    while sum(widths) + len(GAP) * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1


def _is_numeric(column: list[Any]) -> bool:
    values = [value for value in column if value is not None]
    return bool(values) and all(type(value) in {int, float} or _is_capped_count(value) for value in values)


def _is_capped_count(value: Any) -> bool:
    """Whether it is a count with more behind it, such as 10,000+."""
    return isinstance(value, str) and value.endswith("+") and value[:-1].replace(",", "").isdecimal()


def _line(cells: list[str], widths: list[int], to_right: list[bool]) -> str:
    padded = [
        cut.rjust(width) if is_right else cut.ljust(width)
        for cell, width, is_right in zip(cells, widths, to_right, strict=True)
        for cut in [cell if len(cell) <= width else f"{cell[: width - 1]}…"]
    ]
    return GAP.join(padded).rstrip()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
