"""Replays the dead letters of providers: the task that failed is sent once more."""

from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from engines.core import explanation
from engines.dead_letters import AS_IT_WAS, NotReplayableError, ReplayerUnavailableError
from engines.tasks import discovery
from providers import calls, tasks
from providers.core.exchange import Who
from providers.models import TaskExecution
from providers.models.calls import TaskState
from providers.reads import health

ENDED = (TaskState.SUCCEEDED.value, TaskState.FAILED.value)


def knows(letter: Any) -> bool:
    """Whether a dead letter is one of a provider."""
    return bool(letter.details.get("task_name")) and isinstance(letter.details.get("request"), dict)


def replay(letter: Any, payload: Any) -> str:
    """Send a letter's task again, through breaker and quota like any other; the new task's id.

    An unchanged request keeps its key: a failed one is made again by it, and one that has succeeded since is not.
    """
    task_name, request = letter.details["task_name"], letter.details["request"]
    is_edited = payload is not AS_IT_WAS
    asked = payload if is_edited else letter.payload
    _refuse_unknown(task_name, letter)
    if not isinstance(asked, dict):
        raise NotReplayableError(letter, "the request of a provider call must be an object")
    key = f"replay-{letter.pk}" if is_edited else request["idempotency_key"]
    # The arguments of the task, or the request itself.
    named = {name: request[name] for name in ("tenant_id", "campaign_id", "operation")}
    sent = request.get("task_arguments") or {"args": [], "kwargs": named | {"payload": asked}}
    # What is sent is not taken back when this transaction is rolled back: sent again, it counts as a redelivery.
    task_id = str(uuid5(NAMESPACE_OID, f"{letter.uid} {letter.pk} {key} {calls.kept(asked)}"))
    try:
        tasks.send(task_name, sent, {"payload": asked, "idempotency_key": key}, task_id=task_id)
    except tasks.BrokerLostError as error:
        raise ReplayerUnavailableError(letter, "the broker does not answer") from error
    except Exception as error:
        # Of the broker's library: it does not take this one.
        raise NotReplayableError(letter, f"the broker refused it ({type(error).__name__})") from error
    return task_id


def _refuse_unknown(task_name: str, letter: Any) -> None:
    """A task may be in a module of an app, or in one that ERGON_TASKS names."""
    if _is_known(task_name):
        return
    try:
        discovery.discover()
    except discovery.DiscoveryError as error:
        raise NotReplayableError(letter, f"its task {task_name!r} is not known here, and {error}") from error
    if not _is_known(task_name):
        raise NotReplayableError(letter, f"its task {task_name!r} is not known here")


def _is_known(task_name: str) -> bool:
    return task_name in {task.name for task in tasks.provider_tasks()}


def outcomes(ids: Sequence[str]) -> dict[str, str]:
    """Of the tasks with these ids those that have ended: one that waits in the broker, or was rescheduled, has not."""
    rows = TaskExecution.objects.filter(celery_task_id__in=ids, state__in=ENDED)
    # Of one that was run twice, the failure counts.
    return dict(sorted(rows.values_list("celery_task_id", "state"), key=lambda row: row[1] == TaskState.FAILED))


def hindrance(letters: Sequence[Any]) -> str:
    """What a replay of these would meet: an open breaker, or a broker that does not answer."""
    capabilities = {Who(*(letter.details["request"].get(name, "") for name in Who._fields)) for letter in letters}
    breakers = (explanation.hindrance(one.facts()) for one in health.open_among(capabilities))
    return next(breakers, "") or _silence()


def _silence() -> str:
    try:
        tasks.reach_broker()
    except Exception as error:  # noqa: BLE001 (of the broker's library or its transport: silent, away, or refusing us)
        return f"the broker cannot be reached ({type(error).__name__})"
    return ""
