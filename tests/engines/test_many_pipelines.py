"""Many pipelines in one process: one look serves all that wait, and each gets its work."""

import math
import threading
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import structlog
from django.db import ProgrammingError, connection
from django.utils import timezone

from engines import pipelines, transactions
from engines.connectors.database import DatabaseConnector
from engines.core.errors import ConnectorError
from engines.core.policy import EmptyQueuePolicy
from engines.models import Pipeline, TransactionRecord
from engines.transactions.statements import statements
from engines.worker.heartbeat import Heartbeat
from engines.worker.pipeline import Options
from engines.worker.poller import Poller
from engines.worker.process import WorkerProcess
from tests.durable_transactions import make_policy, states, submit
from tests.engines.test_database_connector import CONSUMERS, running, wait_for
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db(transaction=True)

SLEEPY = {"loop": {"empty_queue": {"backoff": 3600.0, "backoff_cap": 3600.0}}}
QUICK = {"loop": {"empty_queue": {"backoff": 0.02, "backoff_cap": 0.05}}}
SOON = EmptyQueuePolicy(backoff=0.02, backoff_cap=0.02)


@pytest.fixture(autouse=True)
def _tasks() -> None:
    import_module("tests.tasks")


def make_pipelines(count: int, task: str = "tests.act", body: dict[str, Any] | None = None) -> list[Pipeline]:
    policy = make_policy("many", QUICK if body is None else body)
    return [make_pipeline(f"pipeline-{number}", task=task, policy=policy) for number in range(count)]


@pytest.mark.parametrize("task", CONSUMERS)
def test_idle_pipelines_are_looked_for_together_and_do_not_claim(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served = make_pipelines(12, task)
    keys = {pipeline.pk for pipeline in served}
    asked: list[set[int] | int] = []  # a set for each look, a number for each claim
    have_been_told = threading.Event()
    claim, due, tell_all = statements().claim, statements().due, Poller.tell_all

    def spy_on_claim(key: int, *given: Any, **more: Any) -> Any:
        asked.append(key)
        return claim(key, *given, **more)

    def spy_on_due(waiting: list[int]) -> Any:
        asked.append(set(waiting))
        return due(waiting)

    def spy_on_tell_all(poller: Poller) -> None:
        tell_all(poller)
        have_been_told.set()

    monkeypatch.setattr(statements(), "claim", spy_on_claim)
    monkeypatch.setattr(statements(), "due", spy_on_due)
    monkeypatch.setattr(Poller, "tell_all", spy_on_tell_all)
    with running(*served):
        if connection.vendor == "postgresql":
            wait_for(have_been_told.is_set)  # by whoever listens: then all of them claim once more
        wait_for(lambda: asked[-10:] == [keys] * 10)
        before = len(asked)
        wait_for(lambda: len(asked) >= before + 10)
        assert asked[before : before + 10] == [keys] * 10


def test_the_first_look_for_many_pipelines_is_made_at_once_and_for_all_of_them() -> None:
    served = make_pipelines(2, body=SLEEPY)
    submit(served[0], 1)
    arrived = threading.Event()
    with Heartbeat([pipeline.name for pipeline in served]) as heartbeat:
        connector = DatabaseConnector(served[0], heartbeat, Options().applied_to)
        connector.on_arrival(arrived.set)
        assert connector.fetch_transactions(10) == []
        arrived.clear()  # of what was told to everybody when the process began to listen
        connector.await_work(3600.0)
        assert arrived.wait(10)
        assert len(connector.fetch_transactions(10)) == 1


@pytest.mark.parametrize("task", CONSUMERS)
def test_each_of_many_pipelines_gets_what_is_submitted_and_what_becomes_due(task: str) -> None:
    served = make_pipelines(12, task)
    with running(*served):
        now = [uid for pipeline in served for uid in submit(pipeline, 2)]
        soon = timezone.now() + timedelta(seconds=0.5)
        later = [transactions.submit(pipeline.name, {}, available_at=soon).id for pipeline in served]
        wait_for(lambda: set(states(*now, *later)) == {"succeeded"})
    assert set(TransactionRecord.objects.values_list("attempts", flat=True)) == {1}


def test_a_pipeline_that_is_paused_waits_with_the_others_until_it_is_resumed() -> None:
    served = make_pipelines(3)
    pipelines.pause(served[0].name, reason="to be tested", by="ada")
    with running(*served):
        kept, done = submit(served[0])[0], submit(served[1])[0]
        wait_for(lambda: states(done) == ["succeeded"])
        assert states(kept) == ["pending"]
        pipelines.resume(served[0].name, reason="tested", by="ada")
        wait_for(lambda: states(kept) == ["succeeded"])


def test_idle_loops_end_when_outcomes_cannot_be_written_any_more() -> None:
    served = make_pipelines(3)
    with WorkerProcess(served, Options()) as worker:
        wait_for(lambda: all(pipeline.pk in worker.heartbeat.poller for pipeline in served))
        # A fault of the completer's own, which nothing from outside can bring about.
        worker.heartbeat.completer._fault = ValueError("a fault of its own")
        wait_for(lambda: not worker.is_running)
    assert [type(error.__cause__) for error in worker.errors] == [ConnectorError] * 3


def test_who_is_about_to_wait_is_told_as_well_when_all_are_to_look() -> None:
    heard: list[int] = []
    poller = Poller()
    poller.subscribe(7, partial(heard.append, 7))
    poller.hurry()
    assert heard == [7]


def test_a_look_that_fails_is_told_once_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.worker.poller.RETRY", 0.01)
    pipeline = make_pipeline(policy=make_policy())
    submit(pipeline)
    faults = [ProgrammingError("no such column"), ProgrammingError("no such column")]
    heard: list[int] = []

    def require() -> None:
        if faults:
            raise faults.pop()

    poller = Poller(require=require)
    poller.subscribe(pipeline.pk, partial(heard.append, pipeline.pk))
    try:
        with structlog.testing.capture_logs() as logs:
            poller.expect(pipeline.pk, 0.0, SOON)
            wait_for(lambda: heard == [pipeline.pk])
    finally:
        poller.close()
    assert [log["error"] for log in logs if log["event"] == "look_failed"] == ["no such column"]


def test_the_longest_wait_of_the_process_counts_if_it_is_shorter() -> None:
    pipeline = make_pipeline(policy=make_policy("sleepy", SLEEPY))
    heard: list[int] = []
    poller = Poller()
    poller.longest_wait = 0.05
    poller.subscribe(pipeline.pk, partial(heard.append, pipeline.pk))
    try:
        poller.expect(pipeline.pk, math.inf, None)
        submit(pipeline)
        wait_for(lambda: heard == [pipeline.pk])
    finally:
        poller.close()
