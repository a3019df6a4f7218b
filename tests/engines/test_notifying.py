"""Waiting workers are told of what is submitted: seldom where that is much, and never too little.

The listeners here look only when they are told to, as a worker does that has nothing to do.
"""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from engines import transactions
from engines.models import TransactionRecord
from engines.transactions import notifications
from engines.transactions.notifications import Notifier
from engines.transactions.statements import postgresql
from engines.transactions.statements.postgresql import CHANNEL
from tests.factories import make_pipeline
from tests.processes import ROOT, database_url, environment, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

BURST = 300


class Listener:
    """A connection that listens: what it was told, and how many rows it saw when it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.seen = 0
        self._over = threading.Event()
        self._connection = psycopg.connect(database_url(), autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")
        self._looking = psycopg.connect(database_url(), autocommit=True)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over.is_set():
            for notification in self._connection.notifies(timeout=0.05):
                self.told.append(notification.payload)
                row = self._looking.execute("SELECT count(*) FROM engines_transactionrecord").fetchone()
                self.seen = row[0] if row else 0

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()
        self._looking.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    eventually(lambda: postgresql.notifier._thread is None, "what the tests before have put off is told")
    listening = Listener()
    yield listening
    listening.close()


def will_see(listener: Listener, count: int) -> None:
    eventually(lambda: listener.seen == count, f"somebody is told to look when {count} are there")


def test_a_lone_transaction_is_told_of(listener: Listener) -> None:
    pipeline = make_pipeline()
    transactions.submit("orders", 1)
    will_see(listener, 1)
    assert listener.told == [str(pipeline.pk)]


def test_what_was_there_before_is_not_told_of_again(listener: Listener) -> None:
    make_pipeline()
    transactions.submit("orders", 1, id="one")
    will_see(listener, 1)
    transactions.submit("orders", 1, id="one")
    make_pipeline("mail")
    transactions.submit("mail", 1)
    will_see(listener, 2)
    assert len(listener.told) == 2


def test_of_a_burst_only_some_notify_but_somebody_looks_after_the_last(listener: Listener) -> None:
    pipelines = [make_pipeline(), make_pipeline("mail")]
    for number in range(BURST):
        transactions.submit(pipelines[number % 2].name, number)
    will_see(listener, BURST)
    assert {told.removesuffix(postgresql.BURST) for told in listener.told} == {str(one.pk) for one in pipelines}
    assert len(listener.told) < BURST


def test_threads_that_submit_at_once_are_all_told_of(listener: Listener) -> None:
    make_pipeline()

    def submit() -> None:
        for number in range(40):
            transactions.submit("orders", number)
        connection.close()

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    will_see(listener, 320)


def test_within_the_callers_transaction_it_is_told_after_the_commit_and_once(listener: Listener) -> None:
    ours, marker = (str(make_pipeline(name).pk) for name in ("orders", "marker"))
    with psycopg.connect(database_url(), autocommit=True) as other:
        with transaction.atomic():
            for number in range(50):
                transactions.submit("orders", number)
            other.execute("SELECT pg_notify(%s, %s)", [CHANNEL, marker])
            eventually(lambda: listener.told == [marker], "somebody else's notification")
        eventually(lambda: ours in listener.told, "ours comes after the commit")
        other.execute("SELECT pg_notify(%s, %s)", [CHANNEL, marker])
        eventually(lambda: listener.told[-1] == marker, "somebody else's, again")
    assert listener.told == [marker, ours, marker]
    will_see(listener, 50)


def test_what_is_rolled_back_is_not_told_of(listener: Listener) -> None:
    make_pipeline()
    mail = make_pipeline("mail")
    with transaction.atomic():
        transactions.submit("orders", 1)
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            transactions.submit("orders", 1)
            transaction.set_rollback(True)
        transactions.submit("mail", 1)
    will_see(listener, 1)
    assert listener.told == [str(mail.pk)]


def test_a_caller_who_commits_by_hand_is_served_too(listener: Listener) -> None:
    make_pipeline()
    transaction.set_autocommit(False)
    try:
        transactions.submit("orders", 1)
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    will_see(listener, 1)


@pytest.mark.parametrize("error", [OperationalError("the server is gone"), RuntimeError("unexpected")])
def test_a_notification_that_fails_is_sent_later_and_the_submission_stands(error: Exception) -> None:
    tries: list[str] = []

    def send(_pipelines: object, _is_burst: object) -> None:
        tries.append(threading.current_thread().name)
        if len(tries) < 3:
            raise error

    Notifier(send).committed(1)
    eventually(lambda: tries[1:] == ["ergon-notifier"] * 2, "it is tried again, and again")


@pytest.mark.parametrize("fault", ["SELECT pg_sleep(3600)", "SELECT pg_terminate_backend(pg_backend_pid())"])
def test_a_notification_without_an_answer_is_sent_later_on_another_connection(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements, sessions = iter([fault]), list[int]()

    def send(_pipelines: object, _is_burst: object) -> None:
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError  # so that the notifier's own sends it
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            sessions.append(cursor.fetchone()[0])
            cursor.execute(next(statements, "SELECT 1"))

    monkeypatch.setattr(notifications, "ANSWER_WITHIN", 0.5)
    Notifier(send).committed(1)
    eventually(lambda: len(sessions) >= 2, "it is tried again")
    assert sessions[0] != sessions[1]


SCRIPT = """
import django, multiprocessing, os, signal, sys, time
django.setup()
from django.db import connections
from engines import transactions

def burst():
    for number in range({burst}):
        transactions.submit("orders", number)
"""
ENDS = {
    "the end of the script": "burst()",
    "SIGTERM": """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        burst(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)""",
    "a process of multiprocessing": """
        burst_elsewhere = multiprocessing.get_context("fork").Process(target=burst)
        burst_elsewhere.start(); burst_elsewhere.join()""",
    "a process of billiard": """
        from billiard.context import ForkContext
        burst_elsewhere = ForkContext().Process(target=burst)
        burst_elsewhere.start(); burst_elsewhere.join()""",
    "a fork while a notification was put off": """
        burst(); connections["default"].connection = None
        if os.fork() == 0:
            connections["default"].connection = None
            burst(); sys.exit()
        os.wait()""",
}


@contextmanager
def running(script: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment(DJANGO_SETTINGS_MODULE="ergon_site.settings"),
        stderr=subprocess.PIPE,
    ) as process:
        yield process


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_has_told_of_everything(end: str, listener: Listener) -> None:
    make_pipeline()
    script = SCRIPT.format(burst=30) + textwrap.dedent(ENDS[end])
    with running(script) as process:
        process.wait(60)
    count = TransactionRecord.objects.count()
    assert count == (60 if "fork" in end else 30), process.stderr and process.stderr.read()
    will_see(listener, count)


@pytest.mark.soak
def test_whatever_many_processes_submit_and_however_they_end_all_of_it_is_told_of(listener: Listener) -> None:
    make_pipeline()
    for turn in range(20):
        ends = [
            "burst()",
            "burst(); sys.exit(1)",
            "burst(); time.sleep(0.05); burst()",
            textwrap.dedent(ENDS["SIGTERM"]),
        ]
        with ExitStack() as processes:
            crowd = [
                processes.enter_context(running(SCRIPT.format(burst=10 + 7 * turn) + end)) for end in (*ends, *ends)
            ]
            for process in crowd:
                process.wait(120)
        will_see(listener, TransactionRecord.objects.count())
