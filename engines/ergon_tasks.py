"""The built-in registrations: connectors that pipelines can name, and the task that runs django-tasks."""

import os
import socket
from contextlib import suppress
from typing import Any

from django.utils import timezone
from django_tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
from django_tasks.signals import task_finished, task_started
from django_tasks.utils import get_exception_traceback, get_module_path, normalize_json

import engines.connectors.builtin  # noqa: F401 (it registers them)
from engines.core.errors import ExceptionType, TransactionException, raised
from engines.drivers.attempts import current_attempt
from engines.task_backend import RUNNER, UnregisteredTaskError, call_in, result_of_attempt
from engines.tasks.consumer import ConsumerTask
from engines.tasks.registry import task
from engines.tasks.transaction import Transaction


@task(RUNNER)
class RunDjangoTask(ConsumerTask):
    """Calls the function that a payload names, if it is marked as a task; its error is the attempt's."""

    def process_transaction(self, transaction: Transaction) -> Any:
        call = call_in(transaction.payload)
        result = _result(transaction, status=TaskResultStatus.RUNNING)
        task_started.send_robust(type(call.task.get_backend()), task_result=result)
        context = [TaskContext(task_result=result)] if call.task.takes_context else []
        return _plain(call.task.call(*context, *call.args, **call.kwargs))

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        _announce(_result(transaction, status=TaskResultStatus.SUCCESSFUL, _return_value=result))

    def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> None:
        with suppress(UnregisteredTaskError):  # then nothing was called that could have failed
            error = raised(exc)
            told = TaskError(
                exception_class_path=get_module_path(type(error)), traceback=get_exception_traceback(error)
            )
            result = _result(transaction, status=TaskResultStatus.FAILED, errors=[told])
            _announce_failure(result, error)


def _result(transaction: Transaction, status: TaskResultStatus, **known: Any) -> TaskResult[Any]:
    attempts = current_attempt().number if status is TaskResultStatus.RUNNING else 1
    if status is not TaskResultStatus.RUNNING:
        known["finished_at"] = timezone.now()
    workers = [f"{socket.gethostname()}:{os.getpid()}"] * attempts
    call = call_in(transaction.payload)
    return result_of_attempt(call, transaction.id, transaction.created_at, workers, status=status, **known)


def _plain(value: Any) -> Any:
    """The result of a task, refused if it is not JSON; another attempt would not change that."""
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        msg = f"the task is done, but its result cannot be stored: {error}"
        raise TransactionException(msg, ExceptionType.BUSINESS) from error


def _announce(result: TaskResult[Any]) -> None:
    """A listener that fails is logged; the call came out as it did."""
    task_finished.send_robust(type(result.task.get_backend()), task_result=result)


def _announce_failure(result: TaskResult[Any], error: BaseException) -> None:
    try:
        raise error
    except type(error):
        # Listeners that report errors look for the one that is being handled.
        _announce(result)
