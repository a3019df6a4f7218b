"""Long polls: who waits for facts keeps a thread of the web process busy, so only a few may do so at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from facts.conf import settings


@contextmanager
def patience(asked: float) -> Iterator[float]:
    """How long a fetch may wait: as long as it asks for, or not at all while as many as may wait do."""
    if not asked or not _places().acquire(blocking=False):
        yield 0.0
        return
    try:
        yield asked
    finally:
        _places().release()


@cache
def _places() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(settings().waiting_fetches)
