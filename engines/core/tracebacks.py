"""Splits the text of a traceback into what its author wrote and what can be folded: frames of libraries."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_FRAME = re.compile(r'  File "([^"]*)", line \d+')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/|^<frozen ")
_OF_FRAME = ("    ", "  [Previous line repeated")


class Part(NamedTuple):
    """Lines of a traceback; those of `frames` frames are folded, where that is not 0."""

    text: str
    frames: int = 0


class _Piece(NamedTuple):
    """A frame of a file, or a line that belongs to none."""

    lines: list[str]
    file: str | None = None


def fold(text: str, roots: Sequence[str] = ()) -> list[Part]:
    """The traceback with frames of libraries, and of files below the roots, folded.

    Of a traceback without any other frame the last one is shown: there must be something to read.
    """
    parts: list[Part] = []
    for piece, is_folded in _judged(list(_pieces(text)), tuple(roots)):
        lines = "\n".join(piece.lines)
        if parts and (parts[-1].frames > 0) is is_folded:
            last = parts.pop()
            parts.append(Part(f"{last.text}\n{lines}", last.frames + is_folded))
        else:
            parts.append(Part(lines, int(is_folded)))
    return parts


def _pieces(text: str) -> Iterator[_Piece]:
    frame: _Piece | None = None
    for line in text.rstrip().split("\n"):
        begins = _FRAME.match(line)
        if frame is not None and not begins and line.startswith(_OF_FRAME):
            frame.lines.append(line)
            continue
        if frame is not None:
            yield frame
        frame = _Piece([line], begins[1]) if begins else None
        if frame is None:
            yield _Piece([line])
    if frame is not None:
        yield frame


def _judged(pieces: Sequence[_Piece], roots: tuple[str, ...]) -> Iterator[tuple[_Piece, bool]]:
    """Each piece, and whether it is folded."""
    is_shown = False  # a frame of the traceback that goes on
    for place, piece in enumerate(pieces):
        if piece.file is None:
            is_shown = False
            yield piece, False
            continue
        is_folded = bool(_LIBRARY.search(piece.file)) or piece.file.startswith(roots)
        is_shown = is_shown or not is_folded
        is_last = place + 1 == len(pieces) or pieces[place + 1].file is None
        yield piece, is_folded and (is_shown or not is_last)
