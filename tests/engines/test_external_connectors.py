"""Pipelines whose transactions come from a registered connector: paused, limited, counted, buried like any other."""

import asyncio
import logging
import math
import re
import threading
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

import engines
from engines import Transaction, conf, dead_letters, pipelines, transactions
from engines.connectors.memory import MemoryConnector
from engines.core.errors import ConnectorError, UnrunnableError
from engines.core.states import State
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Selection, Terms
from engines.executors.settings import executors_in
from engines.models import DeadLetter, DeadLetterGroup, DeadLetterHour, Pipeline, TransactionRecord
from engines.worker import process as worker_process
from engines.worker.pipeline import Options
from engines.worker.process import WorkerProcess
from engines.worker.shared_limit import SharedLimit
from tests.database import refusing
from tests.durable_transactions import consume, make_policy, states, submit
from tests.engines.test_broker_pipelines import ended
from tests.engines.test_database_connector import wait_for
from tests.executors.executor_pools import HANDLERS
from tests.factories import make_pipeline
from tests.processes import LIMIT, ROOT

pytestmark = pytest.mark.django_db(transaction=True)

CONSUMERS = ["tests.act", "tests.act_async"]
_inboxes: dict[str, MemoryConnector] = {}


class WaitingConnector(MemoryConnector):
    """A fetch waits for as long as nothing comes, as with a broker."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False
        self.asked = threading.Event()

    def fetch_transactions(self, batch_size: int, **extra: Any) -> list[Transaction]:
        self.asked.set()
        while not self.count() and not self.is_over:
            time.sleep(0.02)
        return super().fetch_transactions(batch_size, **extra)

    def interrupt(self) -> None:
        self.is_over = True


@engines.connector("inbox")
def _inbox_of(pipeline: str) -> MemoryConnector:
    return _inboxes[pipeline]


@pytest.fixture
def inbox() -> MemoryConnector:
    import_module("tests.tasks")
    _inboxes["foreign"] = MemoryConnector()
    return _inboxes["foreign"]


def make(task: str = "tests.act") -> Pipeline:
    return make_pipeline("foreign", task, connector="inbox", policy=make_policy())


def put(inbox: MemoryConnector, *payloads: dict[str, Any], **fields: Any) -> None:
    inbox.dispatch_transactions([Transaction(f"m{n}", payload, **fields) for n, payload in enumerate(payloads)])


def wait_for_a_beat(worker: WorkerProcess) -> None:
    """Until the heart of the process has looked at everything once more."""
    is_looked_at = threading.Event()
    worker.heartbeat.at_every_beat(is_looked_at.set)
    assert is_looked_at.wait(LIMIT)


def end(worker: WorkerProcess) -> None:
    worker.stop()
    wait_for(lambda: not worker.is_running)


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_paused_pipeline_fetches_nothing_until_it_is_resumed(task: str, inbox: MemoryConnector) -> None:
    pipeline = make(task)
    pipelines.pause("foreign", by="ada", reason="flood")
    put(inbox, {"n": 1})
    with WorkerProcess([pipeline], Options()) as worker:
        time.sleep(1)  # known from the start
        assert inbox.count() == 1
        pipelines.resume("foreign", by="ada", reason="dry")
        wait_for(lambda: len(inbox.outcomes) == 1)
        pipelines.pause("foreign", by="ada", reason="flood again")
        wait_for_a_beat(worker)
        put(inbox, {"n": 2})
        time.sleep(1)
        assert inbox.count() == 1
        end(worker)
    assert worker.errors == []


def test_what_comes_to_a_fetch_that_waited_since_before_the_pause_is_put_back(inbox: MemoryConnector) -> None:
    _inboxes["foreign"] = waiting = WaitingConnector()
    with WorkerProcess([make()], Options()) as worker:
        assert waiting.asked.wait(LIMIT)
        pipelines.pause("foreign", by="ada", reason="flood")
        wait_for_a_beat(worker)
        put(waiting, {"n": 1})
        time.sleep(1)
        assert (waiting.count(), waiting.outcomes) == (1, [])
        end(worker)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (object(), "object is not a connector: derive it from engines.Connector"),
        (engines.AsyncConnector(), "AsyncConnector is an AsyncConnector, which a threaded task cannot await"),
    ],
)
def test_what_no_task_of_the_pipeline_could_use_is_refused_at_the_start(
    made: Any, why: str, inbox: MemoryConnector
) -> None:
    _inboxes["foreign"] = made
    with pytest.raises(UnrunnableError, match=f"'foreign' cannot use the connector 'inbox': {why}"):
        WorkerProcess([make()], Options()).__enter__()


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_failure_that_cannot_be_kept_before_the_end_is_not_acknowledged(
    task: str, inbox: MemoryConnector, tmp_path: Path
) -> None:
    pipeline = make(task)
    put(inbox, {"mark": str(tmp_path / "mark"), "fail": "broken"})
    with refusing("engines_deadletter"), WorkerProcess([pipeline], Options()) as worker:
        wait_for((tmp_path / "mark").exists)
        time.sleep(1)
        end(worker)
    assert inbox.outcomes == []
    (error,) = worker.errors
    assert isinstance(error, ConnectorError)
    assert "the dead letter of 'm0' could not be stored" in str(error)


def lose_the_first_answer(of: Any, verb: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of a verb. The first is carried out like the others, and the connection is lost before the answer."""
    perform, calls = getattr(of, verb), list[Any]()

    def perform_and_lose(*given: Any, **options: Any) -> Any:
        calls.append(given)
        answer = perform(*given, **options)
        if len(calls) == 1:
            msg = "server closed the connection unexpectedly"
            raise OperationalError(msg)
        return answer

    monkeypatch.setattr(of, verb, perform_and_lose)
    return calls


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_failure_whose_answer_from_the_database_is_lost_has_one_dead_letter(
    task: str, inbox: MemoryConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, calls = make(task), lose_the_first_answer(dead_letters, "record", monkeypatch)
    put(inbox, {"fail": "broken"})
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: len(inbox.outcomes) == 1)
        end(worker)
    assert len(calls) == 2
    assert list(DeadLetter.objects.values_list("uid", flat=True)) == ["m0"]
    assert list(DeadLetterGroup.objects.values_list("total", "open_count")) == [(1, 1)]
    assert list(DeadLetterHour.objects.values_list("count", flat=True)) == [1]


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_final_failure_is_one_line_of_the_log(
    task: str, inbox: MemoryConnector, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = make(task)
    put(inbox, {"fail": "broken"}, {"n": 1})
    with caplog.at_level(logging.ERROR), WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: len(inbox.outcomes) == 2)
        end(worker)
    (line,) = [record.getMessage() for record in caplog.records if "transaction_failed" in record.getMessage()]
    assert "ValueError: broken" in line
    assert "m0" in line


def test_a_dead_letter_keeps_what_a_replay_needs_and_the_replay_has_it(inbox: MemoryConnector) -> None:
    pipeline = make("tests.handled")
    payload = {"fail": "broken", "catch": {"fail": "and the handler"}}
    put(inbox, payload, metadata={"tenant": 7}, correlation_id="order:1", parent_id="p1", source="shop")
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(DeadLetter.objects.exists)
        end(worker)
    letter = DeadLetter.objects.get()
    told = {name: letter.details[name] for name in ("metadata", "correlation_id", "parent_id", "source", "trace_id")}
    assert told == {
        "metadata": {"tenant": 7},
        "correlation_id": "order:1",
        "parent_id": "p1",
        "source": "shop",
        "trace_id": None,
    }
    assert (letter.message, letter.step) == ("broken", "process")
    assert letter.details["exception_handler"] == {"type": "ValueError", "message": "and the handler"}
    new = transactions.find(
        transactions.replay_letter(letter.pk, by="ada", reason="mended", payload={**payload, "fail": "x"})
    )
    assert (new.metadata, new.correlation_id, new.parent_id, new.source) == ({"tenant": 7}, "order:1", "m0", "shop")
    assert new.payload_changes == [{"path": "fail", "before": "broken", "after": "x"}]


UNKEPT = [
    ({"fail": "a\x00b"}, {}, {"fail": "a\ufffdb"}, "the payload holds U+0000, which no database text can"),
    ({"fail": "no", "rate": math.nan}, {}, {"fail": "no", "rate": "nan"}, "the payload is not JSON"),
    ({"fail": "\ud800"}, {}, {"fail": "?"}, "the payload is not JSON: a text holds half of a surrogate pair"),
    ({"fail": "no"}, {"name": "\x00"}, {"fail": "no"}, "the metadata holds U+0000, which no database text can"),
]


@pytest.mark.parametrize(("payload", "metadata", "kept", "why"), UNKEPT, ids=["nul", "nan", "half", "metadata"])
def test_what_cannot_be_kept_as_it_was_is_shown_and_replayed_only_with_a_payload_of_somebody(
    payload: dict[str, Any], metadata: dict[str, Any], kept: Any, why: str, inbox: MemoryConnector, browse: Client
) -> None:
    pipeline = make()
    put(inbox, payload, metadata=metadata)
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(DeadLetter.objects.exists)
        end(worker)
    letter = DeadLetter.objects.get()
    assert letter.payload == kept
    page = browse.get(reverse("admin:engines_deadletter_change", args=[letter.pk])).content.decode()
    assert "Its payload could not be kept as it was: edit it to replay it." in page
    with pytest.raises(dead_letters.NotReplayableError, match=re.escape(why)):
        transactions.replay_letter(letter.pk, by="ada", reason="again")
    selection = Selection(kind="dead_letter", keys=(letter.pk,))
    operation = bulk.begin_selected("replay", selection, Terms(), by="ada", reason="again")
    assert (operation.dry_run["would"], sum(operation.dry_run["skipped"].values())) == (0, 1)
    assert not TransactionRecord.objects.exists()
    new = transactions.find(transactions.replay_letter(letter.pk, by="ada", reason="mended", payload={"n": 1}))
    assert (new.payload, new.metadata) == ({"n": 1}, {})


def test_a_replay_as_it_was_has_no_changes(inbox: MemoryConnector) -> None:
    pipeline = make()
    put(inbox, {"fail": "broken"}, correlation_id="c" * 300)
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(DeadLetter.objects.exists)
        end(worker)
    new = transactions.find(transactions.replay_letter(DeadLetter.objects.get().pk, by="ada", reason="again"))
    assert (new.payload, new.payload_changes, new.correlation_id) == ({"fail": "broken"}, None, "c" * 200)


@pytest.mark.parametrize("task", CONSUMERS)
def test_a_limit_counts_what_starts_from_both_sides_and_ends_both(task: str, inbox: MemoryConnector) -> None:
    pipeline = make(task)
    own = submit(pipeline, 3)
    put(inbox, *({"n": number} for number in range(30)))
    with WorkerProcess([pipeline], Options(limit=10)) as worker:
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []
    done = states(*own).count("succeeded")
    assert done + len(inbox.outcomes) == 10
    assert inbox.count() == 30 - len(inbox.outcomes)


def test_a_limit_ends_a_pipeline_whose_transactions_all_come_from_one_side(inbox: MemoryConnector) -> None:
    pipeline = make()
    put(inbox, *({"n": number} for number in range(5)))
    with WorkerProcess([pipeline], Options(limit=4)) as worker:
        wait_for(lambda: not worker.is_running)
    assert (len(inbox.outcomes), inbox.count(), worker.errors) == (4, 1, [])


@pytest.mark.parametrize("task", CONSUMERS)
def test_what_came_from_elsewhere_is_in_flight_while_it_runs(task: str, inbox: MemoryConnector, tmp_path: Path) -> None:
    pipeline = make(task)
    # One after the other: a handler that waits keeps all of an event loop.
    put(inbox, {"sleep": 5} if task == "tests.act_async" else {"until": str(tmp_path / "gate")})
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: worker.heartbeat.in_flight == 1)
        (tmp_path / "gate").touch()
        wait_for(lambda: ended(pipeline) == (1, 0))
        wait_for(lambda: worker.heartbeat.in_flight == 0)
        end(worker)


@pytest.mark.once
def test_a_pipeline_whose_connector_is_not_here_is_left_out_and_named() -> None:
    make_pipeline("lost", connector="no.such.connector", policy=make_policy())
    good = submit(make_pipeline("orders", policy="quick"), 2)
    run = consume("--drain")
    assert (run.code, set(states(*good))) == (0, {"succeeded"})
    assert "the pipeline 'lost' is skipped: there is no connector 'no.such.connector' here" in run.errors


def test_counts_survive_a_database_that_refuses_them_for_a_while(inbox: MemoryConnector) -> None:
    pipeline = make()
    with WorkerProcess([pipeline], Options()) as worker:
        with refusing("engines_throughput"):
            put(inbox, {"n": 1}, {"n": 2})
            wait_for(lambda: len(inbox.outcomes) == 2)
            time.sleep(2)  # in which they are refused at least once
        wait_for(lambda: ended(pipeline) == (2, 0))
        end(worker)
    assert TransactionRecord.objects.count() == 0


def test_counts_whose_answer_from_the_database_is_lost_are_counted_once(
    inbox: MemoryConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, calls = make(), lose_the_first_answer(transactions, "count_tally", monkeypatch)
    put(inbox, {"n": 1})
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: len(calls) == 1)
        put(inbox, {"n": 2}, {"fail": "broken"})
        wait_for(lambda: len(calls) >= 2 and len(inbox.outcomes) == 3)
        end(worker)
    assert ended(pipeline) == (2, 1)


class Counted:
    """How many of its transactions run at once, and in which order they began."""

    def __init__(self) -> None:
        self.lock, self.gate = threading.Lock(), threading.Event()
        self.running = self.most = 0
        self.begun: list[str] = []

    def begin(self, transaction: Transaction) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.begun.append(transaction.payload["from"])

    def end(self) -> None:
        with self.lock:
            self.running -= 1


counted = Counted()


@engines.task("tests.counted")
class CountedTask(engines.ConsumerTask):
    def process_transaction(self, transaction: Transaction) -> None:
        counted.begin(transaction)
        counted.gate.wait(LIMIT)
        time.sleep(0.01)
        counted.end()


@engines.task("tests.counted_async")
class CountedAsyncTask(engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> None:
        counted.begin(transaction)
        while not counted.gate.is_set():  # noqa: ASYNC110 (a thread sets it)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        counted.end()


MANY = 60


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("task", ["tests.counted", "tests.counted_async"])
def test_what_comes_from_elsewhere_and_what_is_submitted_share_the_slots(
    task: str, concurrency: int, inbox: MemoryConnector
) -> None:
    counted.__init__()  # type: ignore[misc]
    loop = {"concurrency": {"value": concurrency}, "batch": {"size": MANY}, "empty_queue": {"backoff": 0.05}}
    pipeline = make_pipeline("foreign", task, connector="inbox", policy=make_policy(body={"loop": loop}))
    submit(pipeline, MANY, **{"from": "here"})
    inbox.dispatch_transactions([Transaction(f"m{n}", {"from": "elsewhere"}) for n in range(MANY)])
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: counted.running == concurrency)
        wait_for(lambda: inbox.count() == 0 and TransactionRecord.objects.filter(state=State.RUNNING).exists())
        counted.gate.set()
        wait_for(lambda: len(counted.begun) == 2 * MANY and counted.running == 0)
        worker.stop()
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []
    assert counted.most == concurrency
    # Neither waits until the other has ended: both have had a turn before the first of them is through.
    assert {*counted.begun[:MANY]} == {"here", "elsewhere"}


def test_slots_go_to_whoever_has_fewer() -> None:
    slots = SharedLimit()
    one, two = slots.share(), slots.share()
    assert [one.take(2), one.take(2), one.take(2), two.take(2)] == [True, True, False, False]
    one.give()
    assert [one.take(2), two.take(2)] == [False, True]
    one.give()
    assert [two.take(2), one.take(2)] == [False, True]


def test_a_loop_that_has_nothing_to_run_keeps_no_other_from_its_slots() -> None:
    slots, woken = SharedLimit(), list[str]()
    one, two = slots.share(), slots.share()
    one.wake, two.wake = (lambda: woken.append("one")), (lambda: woken.append("two"))
    assert [one.take(1), two.take(1)] == [True, False]
    one.give()
    assert woken == ["two"]
    assert one.take(1) is False, "it is the other one's turn"
    two.decline()
    assert woken == ["two", "one"]
    assert one.take(1) is True


def test_a_job_from_elsewhere_that_waits_for_an_executor_leaves_its_shared_slot(
    monkeypatch: pytest.MonkeyPatch, inbox: MemoryConnector, tmp_path: Path
) -> None:
    one = {"command": HANDLERS, "cwd": str(ROOT)}
    known = replace(conf.settings(), executors=executors_in({"one": one, "two": one}))
    monkeypatch.setattr(worker_process, "settings", lambda: known)  # the test's process has no ERGON_EXECUTORS
    loop = {"concurrency": {"value": 2}, "batch": {"size": 2}, "empty_queue": {"backoff": 0.05}}
    policy = make_policy(body={"loop": loop})
    pipeline = make_pipeline("foreign", "", executor="one", connector="inbox", policy=policy)
    mark = str(tmp_path / "mark")
    inbox.dispatch_transactions([Transaction(f"m{n}", {"function": "wait_for", "args": [mark]}) for n in range(2)])
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: bool(worker.pools.snapshot() and worker.pools.snapshot()[0]["processes"]))
        # Of those two one runs and one waits; they end when this one has run, in the slot that is left.
        made = transactions.submit("foreign", {"function": "two#mark", "args": [mark, ""]})
        wait_for(lambda: states(made.id) == ["succeeded"] and len(inbox.outcomes) == 2)
        worker.stop()
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []
    assert [type(outcome) for _, outcome in inbox.outcomes] == [engines.Success] * 2
