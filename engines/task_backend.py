"""Backends for task functions: a function that is enqueued is a transaction, and a queue is a pipeline.

A call is kept or forgotten with the caller's database transaction. What runs it is the task `django_tasks.run`, in
`engines/ergon_tasks.py`, whichever of the two interfaces marked the function.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import import_string
from django_tasks.base import DEFAULT_TASK_QUEUE_NAME, TASK_MAX_PRIORITY, TASK_MIN_PRIORITY
from django_tasks.utils import get_module_path, normalize_json

from engines import pipelines, transactions
from engines.core.errors import EngineError, ExceptionType, TransactionException
from engines.core.states import STAGES, AttemptOutcome, State
from engines.core.steps import Stage
from engines.models import Attempt, TransactionRecord, Worker
from engines.task_interfaces import DJANGO, INTERFACES, PACKAGE, TASK_CLASSES, Interface, interface_of
from engines.transactions import PipelineUnknownError, TransactionUnknownError
from ergon_site.access.cli.program import typed

RUNNER = "django_tasks.run"
PIPELINE = "django-tasks"
STATUS = {
    State.PENDING: "READY",
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "SUCCESSFUL",
    State.FAILED: "FAILED",
    State.CANCELLED: "FAILED",
}


class TaskPipelineError(EngineError, *(one.refused for one in INTERFACES)):  # type: ignore[misc]
    """A queue without a pipeline that could run its tasks."""

    code = "no_task_pipeline"


class UnregisteredTaskError(TransactionException):
    """A payload that is no call of a task. Another attempt would not make it one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExceptionType.BUSINESS)


class TaskCancelledError(EngineError):
    """The transaction was cancelled before it ran, or before it succeeded."""


class Call(NamedTuple):
    task: Any
    args: list[Any]
    kwargs: dict[str, Any]


class TransactionBackend:
    """Both backends: what they do with a call. The base class of an interface decides which tasks are valid."""

    alias: str
    interface: Interface
    validate_task: Callable[[Any], None]
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Submit a call of the task; a greater priority goes first, as in any pipeline."""
        self.validate_task(task)
        call = Call(task, normalize_json(args), normalize_json(kwargs))
        submitted = transactions.submit(
            _pipeline(task.queue_name),
            {"task": task.module_path, "args": call.args, "kwargs": call.kwargs},
            priority=task.priority,
            available_at=task.run_after,
            metadata={"queue_name": task.queue_name, "run_after": task.run_after and task.run_after.isoformat()},
        )
        result = make_result(self.alias, call, submitted.id, status="READY", enqueued_at=timezone.now())
        self.interface.enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The state of a call: that of its transaction, with an error for each failed attempt."""
        try:
            record = transactions.find(str(result_id))
            call = call_in(record.payload if record.pipeline.task == RUNNER else None)
        except (TransactionUnknownError, UnregisteredTaskError) as error:
            raise self.interface.no_result(result_id) from error
        tried = Attempt.objects.filter(transaction_id=record.pk, step=STAGES[Stage.PROCESS]).order_by(
            "delivery", "number"
        )
        attempts, run_after = list(tried), record.metadata.get("run_after")
        workers = [one for one in (*(each.worker for each in attempts), record.lease_owner) if one is not None]
        rows = Worker.objects.in_bulk(set(workers))
        as_enqueued = call.task.using(
            priority=max(TASK_MIN_PRIORITY, min(record.priority, TASK_MAX_PRIORITY)),
            queue_name=record.metadata.get("queue_name"),
            run_after=datetime.fromisoformat(run_after) if run_after else None,
            backend=self.alias,
        )
        return make_result(
            self.alias,
            call._replace(task=as_enqueued),
            record.uid,
            status=STATUS[State(record.state)],
            enqueued_at=record.created_at,
            started_at=attempts[0].started_at if attempts else record.started_at,
            last_attempted_at=attempts[-1].started_at if attempts else record.started_at,
            finished_at=record.finished_at,
            errors=_errors(record, attempts),
            # The host and process of each attempt, or the worker's number once its row is gone.
            worker_ids=[f"{rows[one].host}:{rows[one].pid}" if one in rows else str(one) for one in workers],
            _return_value=record.result,
        )


class ErgonBackend(TransactionBackend, PACKAGE.backend):  # type: ignore[name-defined]
    """For functions of the package `django_tasks`, on any Django."""

    interface = PACKAGE


class DjangoBackend(TransactionBackend, (DJANGO or PACKAGE).backend):  # type: ignore[misc]
    """For functions of `django.tasks`. Before Django 6 it serves the package, until a system check refuses it."""

    interface = DJANGO or PACKAGE


def call_in(payload: Any) -> Call:
    """The call in a payload. Its task is of an installed app or a module that is loaded: nothing else is imported."""
    match payload:
        case {"task": str(path), "args": list(args), "kwargs": dict(kwargs)}:
            module, found = path.rpartition(".")[0], None
            if module in sys.modules or apps.get_containing_app_config(module) is not None:
                with suppress(ImportError):
                    found = import_string(path)
            if isinstance(found, TASK_CLASSES) and found.module_path == path:
                return Call(found, args, kwargs)
            msg = f"there is no function {path!r} that is marked as a task"
        case _:
            msg = "the payload must be an object with the fields task, args and kwargs"
    raise UnregisteredTaskError(msg)


def _pipeline(queue: str) -> str:
    """The pipeline of a queue: the one of its name, and for the default queue its own."""
    name = PIPELINE if queue == DEFAULT_TASK_QUEUE_NAME else queue
    command = typed(f"pipeline create {name} --task {RUNNER}")
    try:
        pipeline = pipelines.find(name)
    except PipelineUnknownError:
        msg = f"the queue {queue!r} needs the pipeline {name!r}: create it with {command}"
        raise TaskPipelineError(msg) from None
    if pipeline.task != RUNNER:
        msg = f"the queue {queue!r} leads to the pipeline {name!r}, which does not run {RUNNER}: use another queue"
        raise TaskPipelineError(msg)
    return name


def make_result(alias: str, call: Call, uid: str, *, status: str, **known: Any) -> Any:
    """A result of the interface that marked the function; an error is its class and a text."""
    of, unknown = interface_of(call.task), dict.fromkeys(("started_at", "finished_at", "last_attempted_at"))
    errors = [of.error(exception_class_path=path, traceback=told) for path, told in known.pop("errors", ())]
    fields = {"worker_ids": [], **unknown, **call._asdict(), **known}
    return of.result(id=uid, backend=alias, status=of.status(status), errors=errors, **fields)


def _errors(record: TransactionRecord, tried: Iterable[Attempt]) -> list[tuple[str, str]]:
    failed = [one for one in tried if one.outcome == AttemptOutcome.FAILURE]
    if record.state == State.CANCELLED:
        when = "before it ran" if record.cancel_requested_at is None else "while it ran"
        return [(get_module_path(TaskCancelledError), f"cancelled {when}")]
    if record.state == State.FAILED and not failed:
        return [(get_module_path(TransactionException), (record.error or {}).get("message", ""))]
    return [(_class_in(one), one.traceback or "") for one in failed]


def _class_in(attempt: Attempt) -> str:
    """The path of the error's class: its last line in a traceback begins with it, but for the built-in ones."""
    name = attempt.error_type or "Exception"
    lines = re.findall(rf"^((?:\w+\.)*{re.escape(name)})(?::|$)", attempt.traceback or "", flags=re.MULTILINE)
    path: str = lines[-1] if lines else name
    return path if "." in path else f"builtins.{path}"
