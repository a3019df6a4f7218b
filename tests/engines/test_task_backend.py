"""Task functions on Ergon: enqueued with the caller's database transaction, run by a pipeline.

Each test runs with the package `django_tasks` and, on Django 6, with `django.tasks`.
"""

import asyncio
import sys
import time
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import django
import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction as database
from django.utils import timezone
from django_tasks import task

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
from tests.functions import TooSmallError
from tests.processes import run

pytestmark = pytest.mark.django_db


MODULES = {"django_tasks": "tests.functions"}
if django.VERSION >= (6,):
    MODULES["django.tasks"] = "tests.functions_of_django"


class Tasks:
    """One of the two interfaces, and the functions that are marked with it."""

    def __init__(self, root: str) -> None:
        interface, functions = import_module(f"{root}.base"), import_module(MODULES[root])
        exceptions = import_module(f"{root}.exceptions")
        self.root, self.module = root, functions.__name__
        self.Task, self.Result, self.Status = interface.Task, interface.TaskResult, interface.TaskResultStatus
        self.Refused = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
        self.NoResult = exceptions.TaskResultDoesNotExist
        self.signals: Any = import_module(f"{root}.signals")
        self.backend: Any = functions.double.get_backend()
        self.total, self.double, self.attempt = functions.total, functions.double, functions.attempt
        self.wait, self.secret = functions.wait, functions.secret


@pytest.fixture(params=MODULES)
def marked(request: pytest.FixtureRequest) -> Tasks:
    return Tasks(request.param)


@task
def unloaded() -> None:
    """Of a module that no consumer has loaded, and no app has."""


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
def test_a_call_is_enqueued_run_and_its_result_found(marked: Tasks) -> None:
    result = marked.double.enqueue(20, plus=2)
    assert result.status is marked.Status.READY
    assert (isinstance(result.task, marked.Task), isinstance(result, marked.Result)) == (True, True)
    assert not result.is_finished
    assert run_next() == Success(42)
    result.refresh()
    assert (result.status, result.return_value, result.errors) == (marked.Status.SUCCESSFUL, 42, [])
    found = marked.double.get_result(result.id)
    assert (found.args, found.kwargs, found.attempts, found.return_value) == ([20], {"plus": 2}, 1, 42)
    assert found.enqueued_at
    assert found.started_at
    assert found.finished_at
    assert found.enqueued_at <= found.started_at <= found.finished_at
    assert found.worker_ids == [f"{workers.alive()[0].host}:{workers.alive()[0].pid}"]
    assert found == marked.double.get_result(result.id)


@pytest.mark.django_db(transaction=True)
def test_a_call_is_forgotten_with_the_transaction_that_enqueued_it(marked: Tasks) -> None:
    with database.atomic():
        result = marked.double.enqueue(1)
        database.set_rollback(True)
    assert TransactionRecord.objects.count() == 0
    with pytest.raises(marked.NoResult):
        marked.double.get_result(result.id)


def test_a_call_that_fails_tells_its_error_with_class_and_traceback(marked: Tasks) -> None:
    result = marked.double.enqueue(-1)
    assert isinstance(run_next(), Failure)
    found = marked.double.get_result(result.id)
    (error,) = found.errors
    assert (found.status, found.is_finished, found.attempts) == (marked.Status.FAILED, True, 1)
    assert error.exception_class is TooSmallError
    assert "-1 is too small" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = found.return_value


def test_built_in_errors_have_a_class_too(marked: Tasks) -> None:
    result = marked.double.enqueue("a", plus=1)
    run_next()
    assert marked.double.get_result(result.id).errors[0].exception_class is TypeError


@pytest.mark.django_db(transaction=True)
def test_coroutines_run_and_are_enqueued_from_coroutines(marked: Tasks) -> None:
    async def enqueue() -> str:
        result = await marked.wait.aenqueue(0.01)
        assert (await marked.wait.aget_result(result.id)).status == marked.Status.READY
        await sync_to_async(connections.close_all)()
        return str(result.id)

    uid = asyncio.run(enqueue())
    assert run_next() == Success("waited")
    assert marked.backend.get_result(uid).return_value == "waited"


def test_a_task_that_takes_a_context_is_given_it(marked: Tasks) -> None:
    result = marked.attempt.enqueue()
    assert run_next() == Success([1, result.id, "RUNNING", f"{marked.root}.base.Task"])


def test_a_deferred_call_waits_for_its_time(marked: Tasks) -> None:
    later = timezone.now() + timedelta(hours=1)
    result = marked.double.using(run_after=later).enqueue(1)
    assert run_next() is None
    assert marked.double.get_result(result.id).task.run_after == later
    marked.double.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(2)
    assert run_next() == Success(4)


def test_greater_priorities_go_first(marked: Tasks) -> None:
    for priority in (0, -100, 100):
        marked.double.using(priority=priority).enqueue(priority + 100)
    assert [run_next() for _ in range(3)] == [Success(400), Success(200), Success(0)]
    with pytest.raises(marked.Refused, match="priority"):
        marked.double.using(priority=101)


def test_a_result_says_what_becomes_of_its_transaction(marked: Tasks, pipeline: Pipeline) -> None:
    running, cancelled = marked.double.using(priority=1).enqueue(1), marked.double.enqueue(1)
    transactions.claim(pipeline.pk, 1, workers.enrol(["django-tasks"]).pk)
    transactions.cancel(cancelled.id, by="ada", reason="not needed")
    running.refresh()
    cancelled.refresh()
    assert (running.status, running.attempts, running.task.priority) == (marked.Status.RUNNING, 1, 1)
    assert cancelled.status == marked.Status.FAILED
    assert cancelled.errors[0].exception_class is TaskCancelledError
    assert cancelled.errors[0].traceback == "cancelled before it ran"


def test_another_queue_is_another_pipeline(marked: Tasks) -> None:
    pipelines.create("reports", Plan(task="django_tasks.run"), by="tests")
    result = marked.double.using(queue_name="reports").enqueue(4)
    assert run_next() is None
    assert run_next("reports") == Success(8)
    assert marked.double.get_result(result.id).task.queue_name == "reports"


def test_a_queue_without_its_pipeline_is_refused_with_the_command_that_makes_it(marked: Tasks) -> None:
    with pytest.raises(TaskPipelineError, match=r"manage\.py pipeline create mails --task django_tasks\.run"):
        marked.double.using(queue_name="mails").enqueue(1)
    pipelines.create("invoices", Plan(task="invoices.import"), by="tests")
    with pytest.raises(marked.Refused, match=r"does not run django_tasks\.run"):
        marked.double.using(queue_name="invoices").enqueue(1)


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
def test_nothing_but_a_task_is_called(marked: Tasks, payload: Any) -> None:
    uid = transactions.submit("django-tasks", payload).id
    outcome = run_next()
    assert isinstance(outcome, Failure)
    assert outcome.error.category is ExceptionType.BUSINESS
    with pytest.raises(marked.NoResult):
        marked.backend.get_result(uid)


def test_a_module_that_nobody_loaded_is_not_loaded_for_a_payload() -> None:
    transactions.submit("django-tasks", {"task": "antigravity.geohash", "args": [], "kwargs": {}})
    run_next()
    assert "antigravity" not in sys.modules


def test_what_cannot_be_kept_is_no_success(marked: Tasks) -> None:
    marked.secret.enqueue()
    outcome = run_next()
    assert isinstance(outcome, Failure)
    assert "cannot be stored" in str(outcome.error)
    with pytest.raises(TypeError):
        marked.double.enqueue(object())


def test_only_results_of_tasks_are_found(marked: Tasks) -> None:
    pipelines.create("invoices", Plan(task="invoices.import"), by="tests")
    other = transactions.submit("invoices", {"task": f"{marked.module}.double", "args": [1], "kwargs": {}})
    for uid in (other.id, "nobody"):
        with pytest.raises(marked.NoResult):
            marked.backend.get_result(uid)


def test_signals_tell_what_happens(marked: Tasks) -> None:
    heard: list[tuple[str, str]] = []

    def listen(name: str) -> Any:
        return lambda task_result, **_: heard.append((name, str(task_result.status)))

    names = ("enqueued", "started", "finished")
    listeners = {getattr(marked.signals, f"task_{name}"): listen(name) for name in names}
    for signal, listener in listeners.items():
        signal.connect(listener)
    try:
        marked.double.enqueue(1)
        run_next()
        marked.double.enqueue(-1)
        run_next()
    finally:
        for signal, listener in listeners.items():
            signal.disconnect(listener)
    once = [("enqueued", "READY"), ("started", "RUNNING")]
    assert heard == [*once, ("finished", "SUCCESSFUL"), *once, ("finished", "FAILED")]


def test_a_poison_call_has_an_error_too(marked: Tasks) -> None:
    result = marked.double.enqueue(1)
    for _ in range(3):
        worker = workers.enrol(["django-tasks"])
        (one,) = transactions.claim(pipelines.find("django-tasks").pk, 1, worker.pk)
        transactions.begin(one.lease)
        transactions.rescue(worker=worker.pk)
    result.refresh()
    assert result.status == marked.Status.FAILED
    assert result.errors[0].exception_class is TransactionException
    assert "without finishing" in result.errors[0].traceback


def test_a_function_belongs_to_the_interface_of_its_backend_whichever_marks_it(marked: Tasks) -> None:
    for root in MODULES:
        by_this = import_module(root).task(backend=marked.backend.alias)
        assert isinstance(by_this(plain), marked.Task)


def test_the_runner_is_registered() -> None:
    assert tasks.find("django_tasks.run") is RunDjangoTask


@pytest.mark.django_db(transaction=True)
def test_a_real_consumer_runs_them(marked: Tasks) -> None:
    done, failed = marked.total.enqueue(20, 22), unloaded.enqueue()
    with durable_transactions.consumer("django-tasks", "--drain", ERGON_TASKS=marked.module) as process:
        assert process.wait(30) == 0
    assert marked.total.get_result(done.id).return_value == 42
    error = TransactionRecord.objects.values_list("error__type", flat=True).get(uid=failed.id)
    assert error == "UnregisteredTaskError"


SETTINGS = """
from ergon_site.settings import *

TASKS = {"default": {"BACKEND": "engines.task_backend.DjangoBackend", "QUEUES": []}}
"""
FUNCTIONS = """
from django.tasks import task

@task
def double(number):
    return number * 2
"""
ENQUEUE = """
from shop_functions import double
print(double.enqueue(21).id)
"""
RESULT = """
import shop_functions
from django.tasks import TaskResult, default_task_backend
result = default_task_backend.get_result("{}")
print(isinstance(result, TaskResult), result.status, result.return_value)
"""


@pytest.mark.django_db(transaction=True)
def test_a_project_names_the_backend_for_the_tasks_of_django_or_is_told_that_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "shop_settings.py").write_text(SETTINGS)
    (tmp_path / "shop_functions.py").write_text(FUNCTIONS)

    def manage(*arguments: str) -> tuple[int, str]:
        changes = {"DJANGO_SETTINGS_MODULE": "shop_settings", "ERGON_TASKS": "shop_functions"}
        ran = run(sys.executable, "manage.py", *arguments, PYTHONPATH=str(tmp_path), **changes)
        return ran.returncode, ran.stdout.strip() or ran.stderr

    if django.VERSION < (6,):
        code, told = manage("check")
        assert code == 1
        assert "(ergon.E004) TASKS['default'] names DjangoBackend, which is for django.tasks: Django 5.2" in told
        assert "or name engines.task_backend.ErgonBackend" in told
        return
    assert manage("check")[0] == 0
    uid = manage("shell", "--no-imports", "-c", ENQUEUE)[1]
    assert manage("consume", "django-tasks", "--drain")[0] == 0
    assert manage("shell", "--no-imports", "-c", RESULT.format(uid)) == (0, "True SUCCESSFUL 42")
