"""A statement whose time is up is cancelled, and no other one."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction
from django.http import HttpRequest, StreamingHttpResponse

from ergon_site.access.console.pages import BROKEN_OFF, _sent
from ergon_site.access.database import calls
from ergon_site.access.database.calls import DatabaseTimeoutError, time_limit
from ergon_site.access.database.watched_calls import WatchedCalls
from ergon_site.access.database.watched_requests import WatchedRequests
from tests.processes import LIMIT, eventually

T = TypeVar("T")

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def test_a_request_to_cancel_that_comes_late_hits_no_later_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is in a transaction is not closed: whoever uses it next must be safe from that request."""
    is_late, is_over = threading.Event(), threading.Event()
    cancel = calls._cancel

    def cancel_late(given: Any) -> None:
        is_late.set()
        is_over.wait(LIMIT)
        cancel(given)

    def run_into_limit() -> None:
        with transaction.atomic(), time_limit(0.1), connection.cursor() as cursor:
            while not is_late.is_set():
                cursor.execute("SELECT pg_sleep(0.05)")
            is_over.set()

    monkeypatch.setattr(calls, "_cancel", cancel_late)
    monkeypatch.setattr(calls, "CANCEL_WITHIN", LIMIT)
    with pytest.raises(DatabaseTimeoutError):
        run_into_limit()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(1)")


def test_watched_calls_end_when_they_are_cut_and_the_next_have_other_connections() -> None:
    watched, begun = WatchedCalls(), threading.Event()

    def work() -> tuple[str, set[int]]:
        sessions = set()
        try:
            with watched.call(), connection.cursor() as cursor:
                sessions.add(session(cursor))
                begun.set()
                cursor.execute("SELECT pg_sleep(3600)")
        except DatabaseTimeoutError as error:
            for _ in range(2):
                with watched.call(), connection.cursor() as cursor:
                    sessions.add(session(cursor))
            return str(error), sessions
        finally:
            connection.close()
        raise AssertionError

    told, sessions = result_of_cut(work, begun, watched)
    assert told.startswith("the database has not answered in time")
    assert len(sessions) == 2


def test_a_part_of_an_answer_that_is_asked_of_the_database_later_is_cut_as_well() -> None:
    requests, begun = WatchedRequests(), threading.Event()

    def parts() -> Iterator[bytes]:
        with connection.cursor() as cursor:
            yield b"first"
            begun.set()
            cursor.execute("SELECT pg_sleep(3600)")

    def take() -> list[bytes]:
        taken = []
        try:
            answer = requests.answer(lambda _: StreamingHttpResponse(parts()), HttpRequest())
            for part in answer:
                taken.append(part)  # noqa: PERF402 (what came before the error counts)
        except DatabaseTimeoutError:
            return taken
        finally:
            connection.close()
        raise AssertionError

    assert result_of_cut(take, begun, requests._calls) == [b"first"]


def test_an_answer_that_is_made_by_an_event_loop_is_left_to_it() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"first"

    answer = WatchedRequests().answer(lambda _: StreamingHttpResponse(parts()), HttpRequest())
    assert answer.is_async


def test_what_an_export_tells_of_a_cut_is_sent() -> None:
    """Also while rows are fetched, when nobody closes the connection that was cut."""
    requests, begun = WatchedRequests(), threading.Event()

    def lines() -> Iterator[str]:
        connection.ensure_connection()
        begun.set()
        with connection.wrap_database_errors:
            connection.connection.execute("SELECT pg_sleep(3600)")
        yield "a line"

    def take() -> bytes:
        try:
            return b"".join(requests.answer(lambda _: StreamingHttpResponse(_sent(lines())), HttpRequest()))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take)
        assert begun.wait(LIMIT)
        eventually(lambda: requests._calls.longest()[1] is not None, "it waits for rows")
        requests._calls.cut()
        assert taking.result(LIMIT).decode() == BROKEN_OFF


def test_only_who_waits_for_a_silent_server_is_looked_at_and_cut() -> None:
    watched, is_cut, begun = WatchedCalls(), threading.Event(), threading.Barrier(3)

    def rest() -> bool:
        with watched.call(), connection.cursor() as cursor:
            before = session(cursor)
            begun.wait(LIMIT)
            is_cut.wait(LIMIT)
            same = session(cursor) == before
        connection.close()
        return same

    def work() -> None:
        with watched.call(), connection.cursor() as cursor:
            begun.wait(LIMIT)
            cursor.execute("SELECT pg_sleep(3600)")

    with ThreadPoolExecutor(2) as pool:
        resting, working = pool.submit(rest), pool.submit(work)
        begun.wait(LIMIT)
        eventually(lambda: watched.longest()[1] is not None, "one waits")
        watched.cut(watched.longest()[1])
        assert isinstance(working.exception(LIMIT), DatabaseTimeoutError)
        assert watched.longest()[1] is None
        is_cut.set()
        assert resting.result(LIMIT)


def result_of_cut(work: Callable[[], T], begun: threading.Event, calls: WatchedCalls) -> T:
    """Of work in a thread, which is cut once it has begun."""
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        assert begun.wait(LIMIT)
        calls.cut()
        return working.result(LIMIT)


def session(cursor: Any) -> int:
    cursor.execute("SELECT pg_backend_pid()")
    return int(cursor.fetchone()[0])


def test_a_connection_that_was_idle_when_calls_were_cut_is_not_used_any_more() -> None:
    watched, sessions = WatchedCalls(), []
    for _ in range(3):
        with watched.call(), connection.cursor() as cursor:
            sessions.append(session(cursor))
        if len(sessions) == 2:
            watched.cut()
    assert sessions[0] == sessions[1] != sessions[2]
