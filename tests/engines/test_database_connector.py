"""Durable transactions through all four engines: every attempt recorded, policies live, nothing idle, nothing lost."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from engines import Transaction, pipelines, policies, transactions
from engines.connectors.database import DatabaseConnector
from engines.core import histogram
from engines.core.errors import TransactionException, UnreachableError, UnrunnableError
from engines.core.outcome import Failure, Success
from engines.core.states import State
from engines.executors.pool import Pools
from engines.models import Attempt, DeadLetter, Durations, Pipeline, TransactionRecord, Worker
from engines.reads import explain
from engines.worker.completer import PLENTY
from engines.worker.database_retry import DatabaseRetry
from engines.worker.heartbeat import Heartbeat
from engines.worker.pipeline import Options, PipelineRunner
from engines.worker.process import WorkerProcess
from engines.worker.shared_limit import SharedLimit
from tests.database import NO_SPACE, answering_late, refusing
from tests.durable_transactions import make_policy, states, submit
from tests.factories import make_pipeline
from tests.processes import LIMIT

pytestmark = pytest.mark.django_db(transaction=True)

DRAIN = Options(is_draining=True)
CONSUMERS = ["tests.act", "tests.act_async"]
ENGINES = [
    ("tests.act", "inbound"),
    ("tests.act_async", "inbound"),
    ("tests.send", "outbound"),
    ("tests.send_async", "outbound"),
]


def policy_of(direction: str) -> str:
    body = {"loop": {"concurrency": {"value": 4}, "batch": {"size": 20}}}
    return make_policy(direction, body, "consumer" if direction == "inbound" else "producer")


def drain(*served: Pipeline, options: Options = DRAIN) -> WorkerProcess:
    """Run pipelines until nothing is due."""
    with WorkerProcess(served, options) as worker:
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []
    return worker


@contextmanager
def running(*served: Pipeline) -> Iterator[WorkerProcess]:
    with WorkerProcess(served, Options()) as worker:
        yield worker
        worker.stop()
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []


def wait_for(holds: Callable[[], bool], seconds: float = LIMIT) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "not in time"
        time.sleep(0.01)


@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_an_order_to_stop_that_comes_before_a_pipeline_runs_is_not_lost(task: str, direction: str) -> None:
    pipeline = make_pipeline(task=task, direction=direction, policy=policy_of(direction))
    ids = submit(pipeline, 2)
    with Heartbeat([pipeline.name]) as heartbeat:
        runner = PipelineRunner(
            pipeline, DatabaseConnector(pipeline, heartbeat, Options().applied_to), Options(), Pools({}, {})
        )
        runner.stop()
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert states(*ids) == ["pending", "pending"]


@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_each_engine_drains_a_pipeline_and_records_every_attempt(task: str, direction: str) -> None:
    pipeline = make_pipeline(task=task, direction=direction, policy=policy_of(direction))
    good = submit(pipeline, 50, **{"return": "ok"})
    bad = submit(pipeline, 2, fail="broken")
    worker = drain(pipeline)
    assert set(states(*good)) == {"succeeded"}
    assert set(states(*bad)) == {"failed"}
    assert Attempt.objects.count() == 52
    mine = Durations.objects.filter(pipeline_id=pipeline.pk)
    assert sum(sum(row) for row in mine.values_list(*histogram.COLUMNS)) == 52
    assert DeadLetter.objects.count() == 2
    assert set(TransactionRecord.objects.filter(uid__in=good).values_list("result", flat=True)) == {"ok"}
    assert worker.heartbeat.completer.settled == 52
    assert Worker.objects.get().state == "stopped"


@pytest.mark.parametrize("every", [None, 3])
@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_low_priorities_do_not_starve_where_every_third_batch_is_of_the_oldest(
    task: str, direction: str, every: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.core.pacing.RESERVE", 3600.0)  # batches of five, also on a slow machine
    body = {"loop": {"concurrency": {"value": 2}, "batch": {"size": 5, "oldest_first_every": every}}}
    policy = make_policy("fair", body, "consumer" if direction == "inbound" else "producer")
    pipeline = make_pipeline(task=task, direction=direction, policy=policy)
    low = [transactions.submit("orders", {}, priority=-1).id for _ in range(8)]
    for _ in range(10):  # more than is run, whatever is run
        submit(pipeline, 10)
    drain(pipeline, options=Options(is_draining=True, limit=30))
    assert states(*low).count("succeeded") == (0 if every is None else 8)
    assert TransactionRecord.objects.filter(state=State.SUCCEEDED.value).count() == 30


def test_a_batch_of_the_oldest_goes_by_age_alone_and_by_the_number_of_the_batch() -> None:
    body = {"loop": {"batch": {"size": 2, "oldest_first_every": 2}}}
    pipeline = make_pipeline(policy=make_policy("fair", body))
    hour = timedelta(hours=1)
    for name, priority, ago in (("a", 1, 1), ("b", 1, 2), ("c", 9, 0), ("d", 5, 0), ("e", 0, 3), ("f", 0, -1)):
        transactions.submit("orders", {}, id=name, priority=priority, available_at=timezone.now() - ago * hour)
    with Heartbeat([pipeline.name]) as heartbeat:
        connector = DatabaseConnector(pipeline, heartbeat)
        batches = [[one.id for one in connector.fetch_transactions(2)] for _ in range(4)]
        connector.close()
    assert batches == [["c", "d"], ["e", "b"], ["a"], []]


# A server that answers a moment too late, of all statements this one, is nothing that a test could order.
@pytest.mark.postgresql
def test_what_a_try_has_claimed_too_late_is_run_by_this_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline()
    ids = submit(pipeline, 3)
    with Heartbeat([pipeline.name]) as heartbeat:
        connector = DatabaseConnector(pipeline, heartbeat)
        connector._retry = DatabaseRetry("claim", limit=0.1, borrow=heartbeat.connections.borrow)
        monkeypatch.setattr(transactions, "claim", answering_late(transactions.claim))
        batch = connector.fetch_transactions(3)
        assert [one.id for one in batch] == ids
        assert [connector.begin(one) for one in batch] == [True] * 3
        connector.release(batch)
        connector.close()


def give_away(transaction: Transaction) -> None:
    """To another worker."""
    TransactionRecord.objects.filter(uid=transaction.id).update(fencing_token=9)


@pytest.mark.postgresql
def test_outcomes_that_were_written_too_late_count_as_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline()
    ids = submit(pipeline, 3)
    with Heartbeat([pipeline.name]) as heartbeat:
        connector = DatabaseConnector(pipeline, heartbeat)
        heartbeat.completer._retry = DatabaseRetry("settle", limit=0.1)
        first, *others = connector.fetch_transactions(3)
        monkeypatch.setattr(transactions, "settle", answering_late(transactions.settle))
        give_away(first)
        for one in (first, *others):
            connector.acknowledge(one, Success(None))
        connector.flush()
        counts = heartbeat.completer.counts[pipeline.pk]
        connector.close()
    assert (counts.succeeded, counts.stale) == (2, 1)
    assert states(*ids) == ["running", "succeeded", "succeeded"]


# A connection that is lost between a commit and its answer is nothing that a test could order, either.
def test_outcomes_whose_answer_was_lost_count_as_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline()
    ids = submit(pipeline, 4)
    with Heartbeat([pipeline.name]) as heartbeat:
        connector = DatabaseConnector(pipeline, heartbeat)
        first, good, bad, late = connector.fetch_transactions(4)
        monkeypatch.setattr(transactions, "settle", losing_its_answer(transactions.settle))
        give_away(first)
        connector.acknowledge(first, Success(None))
        connector.acknowledge(good, Success(None))
        connector.acknowledge(bad, Failure(TransactionException("no")))
        connector.flush()
        give_away(late)
        connector.acknowledge(late, Success(None))
        connector.flush()
        counts = heartbeat.completer.counts[pipeline.pk]
        connector.close()
    assert (counts.succeeded, counts.failed, counts.stale) == (1, 1, 2)
    assert states(*ids) == ["running", "succeeded", "failed", "running"]
    assert [letter.uid for letter in DeadLetter.objects.all()] == [bad.id]


def losing_its_answer(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, which does its work the first time and then finds its connection lost."""
    made: list[None] = []

    def answer(*given: Any, **options: Any) -> Any:
        answered = call(*given, **options)
        made.append(None)
        if len(made) == 1:
            msg = "the connection is lost"
            raise OperationalError(msg)
        return answered

    return answer


def test_handlers_that_an_author_wrote_are_recorded_too() -> None:
    pipeline = make_pipeline(task="tests.handled")
    (good,) = submit(pipeline)
    (bad,) = submit(pipeline, fail="broken", catch={"fail": "and the handler"})
    policies.write("default", {}, by="tests", reason="one attempt")
    drain(pipeline)
    assert [one["step"] for one in explain.explain(good)["attempts"]] == ["process", "success"]
    assert [one["step"] for one in explain.explain(bad)["attempts"]] == ["process", "exception"]
    assert DeadLetter.objects.get().details["exception_handler"]["message"] == "and the handler"


@pytest.mark.parametrize("task", CONSUMERS)
def test_retries_are_recorded_with_their_numbers_and_the_version_they_ran_under(task: str) -> None:
    body = {"steps": {"process": {"retry": {"max_attempts": 3, "backoff": 0.01}}}}
    pipeline = make_pipeline(task=task, policy=make_policy("thrice", body))
    (uid,) = submit(pipeline, fail="broken")
    drain(pipeline)
    attempts = explain.explain(uid)["attempts"]
    assert [(one["number"], one["of"], one["policy_version"]) for one in attempts] == [
        (1, 3, "thrice v1"),
        (2, 3, "thrice v1"),
        (3, 3, "thrice v1"),
    ]
    assert {one["error_type"] for one in attempts} == {"ValueError"}
    assert "broken" in attempts[0]["traceback"]


def test_a_business_failure_is_not_tried_again_and_has_its_dead_letter() -> None:
    body = {"steps": {"process": {"retry": {"max_attempts": 3}}}}
    pipeline = make_pipeline(policy=make_policy("thrice", body))
    (uid,) = submit(pipeline, reject="no such customer")
    drain(pipeline)
    assert len(explain.explain(uid)["attempts"]) == 1
    assert DeadLetter.objects.get().category == "BUSINESS"


def test_a_timeout_is_told_as_one() -> None:
    body = {"steps": {"process": {"retry": {"timeout": 0.05}}}}
    pipeline = make_pipeline(policy=make_policy("brief", body))
    (uid,) = submit(pipeline, sleep=3)
    drain(pipeline)
    assert explain.explain(uid)["error"]["category"] == "TIMEOUT"


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_policy_edited_while_a_consumer_runs_counts_from_its_next_batch_on(task: str) -> None:
    def body(attempts: int, slots: int) -> dict[str, Any]:
        retry = {"max_attempts": attempts}
        return {
            "loop": {"concurrency": {"value": slots}, "batch": {"size": 5}, "empty_queue": {"backoff_cap": 0.1}},
            "steps": {"process": {"retry": retry}},
        }

    pipeline = make_pipeline(task=task, policy=make_policy("live", body(1, 2)))
    with running(pipeline):
        (before,) = submit(pipeline, fail="broken")
        wait_for(lambda: states(before) == ["failed"])
        policies.write("live", body(3, 6), by="ada", reason="tougher")
        (after,) = submit(pipeline, fail="broken")
        wait_for(lambda: states(after) == ["failed"])
        many = submit(pipeline, 30, sleep=0.01)
        wait_for(lambda: set(states(*many)) == {"succeeded"})
    assert [len(explain.explain(uid)["attempts"]) for uid in (before, after)] == [1, 3]
    assert {one["policy_version"] for one in explain.explain(after)["attempts"]} == {"live v2"}


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_lone_transaction_wakes_an_idle_consumer(task: str) -> None:
    body = {"loop": {"empty_queue": {"backoff": 3600.0, "backoff_cap": 3600.0}}}
    pipeline = make_pipeline(task=task, policy=make_policy("sleepy", body))
    with running(pipeline) as worker:
        wait_for(lambda: worker.heartbeat.notifier is not None)
        time.sleep(0.3)
        (uid,) = submit(pipeline)
        wait_for(lambda: states(uid) == ["succeeded"])


def test_slots_wait_for_a_completer_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"loop": {"concurrency": {"value": 4}, "batch": {"size": 200}}}
    pipeline = make_pipeline(policy=make_policy("four", body))
    ids = submit(pipeline, 2 * PLENTY)
    settle, waiting, worker = transactions.settle, list[int](), WorkerProcess([pipeline], DRAIN)

    # A spy that is slow at first: until the slots have stopped, or would have gone on.
    def settle_slowly(batch: Any, **given: Any) -> Any:
        if not waiting:
            taken = worker.heartbeat.completer._waiting
            wait_for(lambda: len(taken) >= min(PLENTY, len(ids) - len(batch)))
            time.sleep(0.2)
            waiting.append(len(taken))
        return settle(batch, **given)

    monkeypatch.setattr(transactions, "settle", settle_slowly)
    with worker:
        wait_for(lambda: not worker.is_running)
    assert set(states(*ids)) == {"succeeded"}
    assert waiting[0] <= PLENTY + 4


def test_an_event_loop_goes_on_while_a_completer_is_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = {"loop": {"concurrency": {"value": 100}, "batch": {"size": 200}}}
    pipeline = make_pipeline(task="tests.act_async", policy=make_policy("many", body))
    late, mark = 20, tmp_path / "mark"
    ids = [uid for number in range(late) for uid in submit(pipeline, sleep=0.2 * number, mark=str(mark))]
    ids += submit(pipeline, 3 * PLENTY)
    settle, waiting, worker = transactions.settle, list[int](), WorkerProcess([pipeline], DRAIN)

    def marks() -> int:
        return len(mark.read_text().splitlines()) if mark.exists() else 0

    # A spy that is slow at first: until slots wait, and handlers that had begun have gone on.
    def settle_slowly(batch: Any, **given: Any) -> Any:
        if not waiting:
            taken = worker.heartbeat.completer._waiting
            wait_for(lambda: len(taken) >= PLENTY)
            before = marks()
            wait_for(lambda: marks() > before or before == late)
            waiting.append(len(taken))
        return settle(batch, **given)

    monkeypatch.setattr(transactions, "settle", settle_slowly)
    with worker:
        wait_for(lambda: not worker.is_running)
    assert set(states(*ids)) == {"succeeded"}
    assert waiting == [PLENTY]


def test_no_slot_idles_while_one_transaction_is_slow(tmp_path: Path) -> None:
    body = {"loop": {"concurrency": {"value": 3}, "batch": {"size": 4}}}
    pipeline = make_pipeline(policy=make_policy("three", body))
    (slow,) = submit(pipeline, until=str(tmp_path / "gate"))
    quick = submit(pipeline, 40, sleep=0.01)
    with WorkerProcess([pipeline], DRAIN) as worker:
        wait_for(lambda: set(states(*quick)) == {"succeeded"})
        assert states(slow) == ["running"]
        (tmp_path / "gate").touch()
        wait_for(lambda: not worker.is_running)


def test_several_pipelines_run_side_by_side_in_one_process() -> None:
    first, second = make_pipeline("first"), make_pipeline("second", task="tests.act_async")
    ids = [*submit(first, 20), *submit(second, 20)]
    drain(first, second)
    assert set(states(*ids)) == {"succeeded"}


def test_a_paused_pipeline_lets_what_runs_end_and_goes_on_when_resumed() -> None:
    pipeline = make_pipeline(policy=make_policy())
    with running(pipeline):
        pipelines.pause("orders", by="ada", reason="flood")
        (uid,) = submit(pipeline)
        time.sleep(0.4)
        assert states(uid) == ["pending"]
        pipelines.resume("orders", by="ada", reason="dry")
        wait_for(lambda: states(uid) == ["succeeded"])


def test_stopping_gives_back_what_has_not_started(tmp_path: Path) -> None:
    body = {"loop": {"concurrency": {"value": 1}, "batch": {"size": 10}}}
    pipeline, mark, gate = make_pipeline(policy=make_policy("one", body)), tmp_path / "mark", tmp_path / "gate"
    ids = submit(pipeline, 10, mark=str(mark), until=str(gate))
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(mark.exists)
        worker.stop()
        gate.touch()
        wait_for(lambda: not worker.is_running)
    assert worker.given_back > 0
    assert set(states(*ids)) == {"succeeded", "pending"}
    assert set(TransactionRecord.objects.filter(state=0).values_list("attempts", flat=True)) == {0}


@pytest.mark.parametrize("task", CONSUMERS)
def test_cutting_gives_back_what_runs_without_burning_an_attempt(task: str) -> None:
    pipeline = make_pipeline(task=task, policy=make_policy())
    (uid,) = submit(pipeline, sleep=30)
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: states(uid) == ["running"])
        time.sleep(0.1)
        worker.stop()
        worker.cut()
        wait_for(lambda: not worker.is_running, seconds=25)
    record = transactions.find(uid)
    assert (record.word, record.attempts) == ("pending", 0)


def test_what_is_claimed_after_the_end_of_an_async_loop_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(policy=make_policy())
    ids = submit(pipeline, 3)
    claim, is_asked, is_over = transactions.claim, threading.Event(), threading.Event()

    # A spy that is slow: the loop is over before the database answers.
    def claim_late(*given: Any, **options: Any) -> Any:
        is_asked.set()
        assert is_over.wait(LIMIT)
        return claim(*given, **options)

    async def fetch_and_end(connector: DatabaseConnector) -> None:
        fetching = asyncio.ensure_future(connector.fetch_transactions_async(10))
        await asyncio.to_thread(is_asked.wait, LIMIT)
        fetching.cancel()
        await asyncio.wait({fetching})

    monkeypatch.setattr(transactions, "claim", claim_late)
    with Heartbeat([pipeline.name]) as heartbeat:
        shared = SharedLimit()
        connector = DatabaseConnector(pipeline, heartbeat, shared=shared)
        asyncio.run(fetch_and_end(connector))
        connector.close()
        is_over.set()
        wait_for(lambda: connector.given_back == 3)
        wait_for(lambda: heartbeat.in_flight == 0)
        assert shared.left(3) == 3
    assert set(states(*ids)) == {"pending"}


def test_what_could_not_be_given_back_is_in_flight_until_the_database_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(policy=make_policy())
    submit(pipeline, 3)

    def refuse(_: Any) -> int:
        raise OperationalError(NO_SPACE)

    with Heartbeat([pipeline.name]) as heartbeat:
        connector = DatabaseConnector(pipeline, heartbeat)
        batch = connector.fetch_transactions(10)
        connector.interrupt()
        monkeypatch.setattr(transactions, "release", refuse)  # while the heart cannot beat, for another reason
        with refusing("engines_worker", "UPDATE"):
            with pytest.raises(UnreachableError, match="3 transactions run again when their leases expire"):
                connector.release(batch)
            assert heartbeat.in_flight == 3
        wait_for(lambda: heartbeat.in_flight == 0)
    assert TransactionRecord.objects.filter(state=State.RUNNING.value).count() == 3


def test_a_limit_counts_what_starts() -> None:
    pipeline = make_pipeline(policy=make_policy())
    ids = submit(pipeline, 30)
    drain(pipeline, options=Options(is_draining=True, limit=7))
    assert states(*ids).count("succeeded") == 7
    assert states(*ids).count("pending") == 23


@pytest.mark.parametrize(("task", "direction"), ENGINES)
def test_a_limit_that_is_lowered_below_what_has_started_ends_the_loop_well(task: str, direction: str) -> None:
    def body(limit: int) -> dict[str, Any]:
        return {"loop": {"limit": limit, **({"empty_queue": {"backoff_cap": 0.1}} if direction == "inbound" else {})}}

    kind = "consumer" if direction == "inbound" else "producer"
    pipeline = make_pipeline(task=task, direction=direction, policy=make_policy("shrinking", body(100), kind))
    with WorkerProcess([pipeline], Options()) as worker:
        before = submit(pipeline, 5)
        wait_for(lambda: set(states(*before)) == {"succeeded"})
        policies.write("shrinking", body(2), by="ada", reason="less")
        after = submit(pipeline)
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []
    assert states(*after) == ["succeeded"]


def test_a_task_of_the_other_direction_is_refused_before_anything_is_claimed() -> None:
    pipeline = make_pipeline(task="tests.send")
    submit(pipeline)
    with pytest.raises(UnrunnableError, match=r"is inbound, but its task 'tests\.send' is no consumer"):
        WorkerProcess([pipeline], DRAIN).__enter__()


def test_the_connector_submits_what_a_task_dispatches() -> None:
    pipeline = make_pipeline(policy=make_policy())
    with running(pipeline) as worker:
        worker.runners[0].connector.dispatch_transactions([Transaction("dispatched", {"n": 1}, correlation_id="c")])
        wait_for(lambda: TransactionRecord.objects.filter(uid="dispatched", state=2).exists())
    assert TransactionRecord.objects.get().correlation_id == "c"


@pytest.fixture(autouse=True)
def _tasks() -> None:
    import_module("tests.tasks")
