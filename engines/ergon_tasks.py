"""The built-in registrations: connectors that pipelines can name, and the task that runs functions of django-tasks."""

import os
import socket
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.utils import timezone
from django_tasks.utils import get_exception_traceback, get_module_path, normalize_json

from engines.conf import settings
from engines.connectors.broker import BrokerConnector
from engines.core.errors import ExceptionType, TransactionException, UnrunnableError, raised
from engines.drivers.attempts import current_attempt
from engines.task_backend import RUNNER, UnregisteredTaskError, call_in, make_result
from engines.task_interfaces import interface_of
from engines.tasks.consumer import ConsumerTask
from engines.tasks.registry import connector, task
from engines.tasks.transaction import Transaction


@connector("broker")
def broker(pipeline: str) -> BrokerConnector:
    """The queue of the broker that has the pipeline's name."""
    url = settings().broker_url
    if url is None:
        msg = f"the pipeline {pipeline!r} takes its transactions from a broker: set CELERY_BROKER_URL to its address"
        raise UnrunnableError(msg)
    return BrokerConnector(url, pipeline)


if apps.is_installed("facts"):
    from engines.connectors.facts import FactsConnector

    @connector("facts")
    def facts(pipeline: str) -> FactsConnector:
        """The consumer of a boundary that has the pipeline's name; a task may append to any boundary with it."""
        return FactsConnector(pipeline)


@task(RUNNER)
class RunDjangoTask(ConsumerTask):
    """Calls the function that a payload names, if it is marked as a task; its error is the attempt's."""

    def process_transaction(self, transaction: Transaction) -> Any:
        call, result = call_in(transaction.payload), _result(transaction, status="RUNNING")
        interface = interface_of(call.task)
        interface.started.send_robust(type(call.task.get_backend()), task_result=result)
        context = [interface.context(task_result=result)] if call.task.takes_context else []
        value = call.task.call(*context, *call.args, **call.kwargs)
        try:
            return normalize_json(value)
        except (TypeError, ValueError) as error:  # another attempt would not change that
            msg = f"the task is done, but its result cannot be stored: {error}"
            raise TransactionException(msg, ExceptionType.BUSINESS) from error

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        _announce(_result(transaction, status="SUCCESSFUL", _return_value=result))

    def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> None:
        with suppress(UnregisteredTaskError):  # then nothing was called that could have failed
            error = raised(exc)
            errors = [(get_module_path(type(error)), get_exception_traceback(error))]
            result = _result(transaction, status="FAILED", errors=errors)
            try:
                raise error
            except type(error):
                # Listeners that report errors look for the one that is being handled.
                _announce(result)


def _result(transaction: Transaction, status: str, **known: Any) -> Any:
    """A call as the process knows that runs it."""
    attempts, call = 1, call_in(transaction.payload)
    if status == "RUNNING":
        attempts = current_attempt().number
    else:
        known["finished_at"] = timezone.now()
    return make_result(
        call.task.backend,
        call,
        transaction.id,
        status=status,
        worker_ids=[f"{socket.gethostname()}:{os.getpid()}"] * attempts,
        enqueued_at=transaction.created_at,
        started_at=timezone.now(),
        last_attempted_at=timezone.now(),
        **known,
    )


def _announce(result: Any) -> None:
    """A listener that fails is logged; the call came out as it did."""
    interface_of(result.task).finished.send_robust(type(result.task.get_backend()), task_result=result)
