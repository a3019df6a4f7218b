"""Follows a real run through the files of the product."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.processes import ROOT

PACKAGES = tuple(f"{ROOT / name}/" for name in ("engines", "facts", "providers", "ergon_site"))


class Walk:
    """The files that are entered, in order: in each thread from a call of a function on, until the last one returns."""

    def __init__(self, firsts: Mapping[str, Callable[..., Any]], last: Callable[..., Any]) -> None:
        self.files: list[str] = []
        self.is_over = threading.Event()
        self._firsts = {prefix: _code(first) for prefix, first in firsts.items()}
        self._last = _code(last)
        self._begun: set[int] = set()
        self._lock = threading.Lock()

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        code, thread = frame.f_code, threading.current_thread()
        if event not in {"call", "return"} or not code.co_filename.startswith(PACKAGES):
            return
        with self._lock:
            if event == "call" and any(
                thread.name.startswith(prefix) and code is first for prefix, first in self._firsts.items()
            ):
                self._begun.add(thread.ident or 0)
            if thread.ident not in self._begun or self.is_over.is_set():
                return
            if event == "return":
                if code is self._last:
                    self.is_over.set()
                return
            file = Path(code.co_filename).relative_to(ROOT).as_posix()
            if file not in self.files:
                self.files.append(file)


@contextmanager
def walking(firsts: Mapping[str, Callable[..., Any]], last: Callable[..., Any]) -> Iterator[Walk]:
    """In this thread, and in those that start meanwhile. `firsts` is by the beginning of a thread's name."""
    walk = Walk(firsts, last)
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
