"""Functions of django-tasks on Ergon: enqueued with the caller's database transaction, run by a pipeline."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction as database
from django.utils import timezone
from django_tasks import TaskContext, TaskResultStatus, default_task_backend, task
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist
from django_tasks.signals import task_enqueued, task_finished, task_started

from engines import ExceptionType, Failure, Success, TransactionException, pipelines, transactions, workers
from engines.core.attempt import AttemptRecord
from engines.core.lifecycle import classify
from engines.core.outcome import Outcome
from engines.core.policy import RetryPolicy
from engines.core.steps import Call, Stage
from engines.ergon_tasks import RunDjangoTask
from engines.models import Pipeline, TransactionRecord
from engines.pipelines import Plan
from engines.task_backend import TaskCancelledError, TaskPipelineError
from engines.tasks.registry import tasks
from engines.transactions import LeasedTransaction, Settlement
from tests import durable_transactions
from tests.functions import total

pytestmark = pytest.mark.django_db


class TooSmallError(Exception):
    pass


@task
def double(number: int, *, plus: int = 0) -> int:
    if number < 0:
        msg = f"{number} is too small"
        raise TooSmallError(msg)
    return number * 2 + plus


@task
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"


@task(takes_context=True)
def attempt(context: TaskContext) -> list[Any]:
    return [context.attempt, context.task_result.id, context.task_result.status]


@task
def secret() -> object:
    return object()


def plain(number: int) -> int:
    return number


@pytest.fixture(autouse=True)
def pipeline() -> Pipeline:
    return pipelines.create("django-tasks", Plan(task="django_tasks.run"), by="tests")


def run_next(name: str = "django-tasks") -> Outcome | None:
    """Claim the next one, run it as an engine would with one attempt, settle it; how it came out."""
    worker = workers.enrol([name])
    for claimed in transactions.claim(pipelines.find(name).pk, 1, worker.pk):
        started = time.monotonic()
        outcome = attempted(claimed)
        tried = AttemptRecord(Stage.PROCESS, 1, 1, started, time.monotonic() - started, outcome)
        claimed.lease.attempts.append((tried, None))
        transactions.settle([Settlement(claimed, outcome)], worker=worker.pk)
        return outcome
    return None


def attempted(claimed: LeasedTransaction) -> Outcome:
    runner = RunDjangoTask()
    try:
        value = runner.process_transaction(claimed)
    except Exception as error:  # noqa: BLE001 (classified)
        failure = classify(error, Call(Stage.PROCESS, 0, RetryPolicy(), None), claimed.id)
        runner.handle_transaction_exception(claimed, failure.error)
        return failure
    runner.handle_transaction_success(claimed, value)
    return Success(value)


@pytest.mark.django_db(transaction=True)
def test_a_call_is_enqueued_run_and_its_result_found() -> None:
    result = double.enqueue(20, plus=2)
    assert result.status == TaskResultStatus.READY
    assert not result.is_finished
    assert run_next() == Success(42)
    result.refresh()
    assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, 42, [])
    found = double.get_result(result.id)
    assert (found.args, found.kwargs, found.attempts, found.return_value) == ([20], {"plus": 2}, 1, 42)
    assert found.enqueued_at
    assert found.started_at
    assert found.finished_at
    assert found.enqueued_at <= found.started_at <= found.finished_at
    assert found.worker_ids == [f"{workers.alive()[0].host}:{workers.alive()[0].pid}"]
    assert found == double.get_result(result.id)


@pytest.mark.django_db(transaction=True)
def test_a_call_is_forgotten_with_the_transaction_that_enqueued_it() -> None:
    with database.atomic():
        result = double.enqueue(1)
        database.set_rollback(True)
    assert TransactionRecord.objects.count() == 0
    with pytest.raises(TaskResultDoesNotExist):
        double.get_result(result.id)


def test_a_call_that_fails_tells_its_error_with_class_and_traceback() -> None:
    result = double.enqueue(-1)
    assert isinstance(run_next(), Failure)
    found = double.get_result(result.id)
    (error,) = found.errors
    assert (found.status, found.is_finished, found.attempts) == (TaskResultStatus.FAILED, True, 1)
    assert error.exception_class is TooSmallError
    assert "-1 is too small" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = found.return_value


def test_built_in_errors_have_a_class_too() -> None:
    result = double.enqueue("a", plus=1)  # type: ignore[arg-type]
    run_next()
    assert double.get_result(result.id).errors[0].exception_class is TypeError


@pytest.mark.django_db(transaction=True)
def test_coroutines_run_and_are_enqueued_from_coroutines() -> None:
    async def enqueue() -> str:
        result = await wait.aenqueue(0.01)
        assert (await wait.aget_result(result.id)).status == TaskResultStatus.READY
        await sync_to_async(connections.close_all)()
        return result.id

    uid = asyncio.run(enqueue())
    assert run_next() == Success("waited")
    assert default_task_backend.get_result(uid).return_value == "waited"


def test_a_task_that_takes_a_context_is_given_it() -> None:
    result = attempt.enqueue()
    assert run_next() == Success([1, result.id, "RUNNING"])


def test_a_deferred_call_waits_for_its_time() -> None:
    later = timezone.now() + timedelta(hours=1)
    result = double.using(run_after=later).enqueue(1)
    assert run_next() is None
    assert double.get_result(result.id).task.run_after == later
    double.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(2)
    assert run_next() == Success(4)


def test_greater_priorities_go_first() -> None:
    for priority in (0, -100, 100):
        double.using(priority=priority).enqueue(priority + 100)
    assert [run_next() for _ in range(3)] == [Success(400), Success(200), Success(0)]
    with pytest.raises(InvalidTaskError, match="priority"):
        double.using(priority=101)


def test_a_result_says_what_becomes_of_its_transaction(pipeline: Pipeline) -> None:
    running, cancelled = double.using(priority=1).enqueue(1), double.enqueue(1)
    transactions.claim(pipeline.pk, 1, workers.enrol(["django-tasks"]).pk)
    transactions.cancel(cancelled.id, by="ada", reason="not needed")
    running.refresh()
    cancelled.refresh()
    assert (running.status, running.attempts, running.task.priority) == (TaskResultStatus.RUNNING, 1, 1)
    assert cancelled.status == TaskResultStatus.FAILED
    assert cancelled.errors[0].exception_class is TaskCancelledError


def test_another_queue_is_another_pipeline() -> None:
    pipelines.create("reports", Plan(task="django_tasks.run"), by="tests")
    result = double.using(queue_name="reports").enqueue(4)
    assert run_next() is None
    assert run_next("reports") == Success(8)
    assert double.get_result(result.id).task.queue_name == "reports"


def test_a_queue_without_its_pipeline_is_refused_with_the_command_that_makes_it() -> None:
    with pytest.raises(TaskPipelineError, match=r"manage\.py pipeline create mails --task django_tasks\.run"):
        double.using(queue_name="mails").enqueue(1)
    pipelines.create("invoices", Plan(task="invoices.import"), by="tests")
    with pytest.raises(InvalidTaskError, match=r"does not run django_tasks\.run"):
        double.using(queue_name="invoices").enqueue(1)


@pytest.mark.parametrize(
    "payload",
    [
        {"task": f"{__name__}.plain", "args": [1], "kwargs": {}},
        {"task": "os.getpid", "args": [], "kwargs": {}},
        {"task": "antigravity.anything", "args": [], "kwargs": {}},
        {"task": f"{__name__}.missing", "args": [], "kwargs": {}},
        {"task": "", "args": [], "kwargs": {}},
        {"task": f"{__name__}.double"},
        [1],
        None,
    ],
)
def test_nothing_but_a_task_is_called(payload: Any) -> None:
    uid = transactions.submit("django-tasks", payload).id
    outcome = run_next()
    assert isinstance(outcome, Failure)
    assert outcome.error.category is ExceptionType.BUSINESS
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(uid)


def test_a_module_that_nobody_loaded_is_not_loaded_for_a_payload() -> None:
    import sys

    transactions.submit("django-tasks", {"task": "antigravity.geohash", "args": [], "kwargs": {}})
    run_next()
    assert "antigravity" not in sys.modules


def test_what_cannot_be_kept_is_no_success() -> None:
    secret.enqueue()
    outcome = run_next()
    assert isinstance(outcome, Failure)
    assert "cannot be stored" in str(outcome.error)
    with pytest.raises(TypeError):
        double.enqueue(object())  # type: ignore[arg-type]


def test_only_results_of_tasks_are_found() -> None:
    pipelines.create("invoices", Plan(task="invoices.import"), by="tests")
    other = transactions.submit("invoices", {"task": f"{__name__}.double", "args": [1], "kwargs": {}})
    for uid in (other.id, "nobody"):
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(uid)


def test_signals_tell_what_happens() -> None:
    heard: list[tuple[str, str]] = []

    def listen(name: str) -> Any:
        return lambda task_result, **_: heard.append((name, str(task_result.status)))

    listeners = {signal: listen(name) for signal, name in SIGNALS.items()}
    for signal, listener in listeners.items():
        signal.connect(listener)
    try:
        double.enqueue(1)
        run_next()
        double.enqueue(-1)
        run_next()
    finally:
        for signal, listener in listeners.items():
            signal.disconnect(listener)
    once = [("enqueued", "READY"), ("started", "RUNNING")]
    assert heard == [*once, ("finished", "SUCCESSFUL"), *once, ("finished", "FAILED")]


SIGNALS = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}


def test_a_poison_call_has_an_error_too() -> None:
    result = double.enqueue(1)
    for _ in range(3):
        worker = workers.enrol(["django-tasks"])
        (one,) = transactions.claim(pipelines.find("django-tasks").pk, 1, worker.pk)
        transactions.begin(one.lease)
        transactions.rescue(worker=worker.pk)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is TransactionException
    assert "without finishing" in result.errors[0].traceback


def test_the_runner_is_registered() -> None:
    assert tasks.find("django_tasks.run") is RunDjangoTask


@pytest.mark.django_db(transaction=True)
def test_a_real_consumer_runs_them() -> None:
    done, failed = total.enqueue(20, 22), double.enqueue(1)
    with durable_transactions.consumer("django-tasks", "--drain", ERGON_TASKS="tests.functions") as process:
        assert process.wait(30) == 0
    assert total.get_result(done.id).return_value == 42
    # Of a module that the consumer has not loaded and no app has.
    error = TransactionRecord.objects.values_list("error__type", flat=True).get(uid=failed.id)
    assert error == "UnregisteredTaskError"
