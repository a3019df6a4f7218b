"""Requests that may take as long as they need, as long as the database answers anybody.

A page or an export has no time limit, and would wait for ever for a server that is frozen, although a replica may have
taken its place. In a web process nobody asks the database now and then, so a thread looks at the requests that take
long: it connects to the same server, and if that does not answer in time, they are cut.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import psycopg
import structlog
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from ergon_site.access.conf import setting
from ergon_site.access.database.calls import DatabaseTimeoutError, started
from ergon_site.access.database.watched_calls import WatchedCalls

LOOK_EVERY = 1.0

R = TypeVar("R", bound=HttpResponseBase)
log = structlog.get_logger("ergon.database")


class WatchedRequests:
    """The requests of a process, which are cut together."""

    def __init__(self) -> None:
        self._calls = WatchedCalls()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def answer(self, get_response: Callable[[HttpRequest], R], request: HttpRequest) -> R:
        self._be_watched()
        with self._calls.call():
            response = get_response(request)
        if isinstance(response, StreamingHttpResponse) and not response.is_async:
            content: Any = response.streaming_content
            response.streaming_content = self._stream(content)
        return response

    def _stream(self, content: Iterable[bytes]) -> Iterator[bytes]:
        """Each part is asked of the database when the client has taken the one before."""
        parts, end = iter(content), object()
        while True:
            part: Any = end
            try:
                with self._calls.call():
                    part = next(parts, end)
            except DatabaseTimeoutError:
                if part is end:  # else the part tells of it
                    raise
            if part is end:
                return
            yield part

    def _be_watched(self) -> None:
        """A forked process has none of its parent's threads."""
        if self._thread is None or not self._thread.is_alive():
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = started(threading.Thread(target=self._watch, name="ergon-requests", daemon=True))

    def _watch(self) -> None:
        rest, pause = threading.Event(), LOOK_EVERY
        while not rest.wait(pause):
            limit, pause = setting("ERGON_DATABASE_TIMEOUT"), LOOK_EVERY
            seconds, asked = self._calls.longest()
            if seconds <= limit:
                continue
            if _answers(asked, limit):
                pause = limit
            else:
                log.warning("requests_cut", error=str(DatabaseTimeoutError.after(limit)))
                self._calls.cut(asked)


def _answers(asked: Any, limit: float) -> bool:
    """Whether the server of a connection answers a new one, be it with a refusal."""
    try:
        # What it tells of itself names that server alone, and the address that its name stood for.
        same: Any = {"password": asked.info.password, "target_session_attrs": "any"}
        psycopg.connect(asked.info.dsn, **same, connect_timeout=math.ceil(limit)).close()
    except psycopg.errors.ConnectionTimeout:
        return False
    except psycopg.Error:
        pass
    return True
