"""Follows a real run through the files of the product."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.processes import ROOT

PACKAGES = tuple(f"{ROOT / name}/" for name in ("engines", "facts", "providers", "ergon_site"))


class Walk:
    """The files that are entered between two calls, in order, in threads whose names begin so."""

    def __init__(self, first: Callable[..., Any], last: Callable[..., Any], threads: tuple[str, ...]) -> None:
        self._threads = threads
        self.files: list[str] = []
        self.is_over = threading.Event()
        self._first, self._last = _code(first), _code(last)
        self._has_begun = False
        self._lock = threading.Lock()

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in {"call", "return"} or not code.co_filename.startswith(PACKAGES):
            return
        if not threading.current_thread().name.startswith(self._threads):
            return
        with self._lock:
            if event == "return":
                if code is self._last and self._has_begun:
                    self.is_over.set()
                return
            self._has_begun = self._has_begun or code is self._first
            file = Path(code.co_filename).relative_to(ROOT).as_posix()
            if self._has_begun and not self.is_over.is_set() and file not in self.files:
                self.files.append(file)


@contextmanager
def walking(
    first: Callable[..., Any], last: Callable[..., Any], threads: tuple[str, ...] = ("MainThread",)
) -> Iterator[Walk]:
    """In this thread, and in those that start meanwhile."""
    walk = Walk(first, last, threads)
    threading.setprofile(walk.profile)
    sys.setprofile(walk.profile)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _code(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__
