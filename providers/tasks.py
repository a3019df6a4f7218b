"""Calls to providers as Celery tasks.

```python
class FetchRank(CeleryProviderTask):
    name, provider, capability = "fetch_rank", "rank", "rank_snapshot"

fetch_rank = app.register_task(FetchRank())


@app.task(base=CeleryProviderTask, provider="rank", capability="rank_snapshot", bind=True)
def fetch_keyword(task, *, tenant_id, keyword):
    return task.ask(tenant_id=tenant_id, operation="snapshot", payload={"keyword": keyword})
```

The first is sent what `ask` takes, `fetch_rank.delay(tenant_id=…, operation=…, payload={…})`, and so is a function
without a body. Its result is the provider's answer; a failure raises one of the errors of providers.
"""

import inspect
import json
import random
import time
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NoReturn
from uuid import uuid4

import structlog
from celery import Task
from celery.exceptions import Ignore, OperationalError, Reject, Retry, SoftTimeLimitExceeded
from celery.signals import worker_process_shutdown, worker_ready
from django.db import connection, transaction
from django.utils.module_loading import autodiscover_modules, import_string

from engines.core import failures
from ergon_site.access.brokers import SHORT_LIMIT, connected, transport_options
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from providers import active_policy, calls, invocations, outbox, registry
from providers.base import ProviderBase
from providers.circumstances import calling
from providers.conf import settings
from providers.core import errors
from providers.core.errors import (
    ProviderDependencyError,
    ProviderError,
    ProviderInternalError,
    ProviderTimeoutError,
    ProviderUsageError,
)
from providers.core.exchange import Outcome, ProviderExecutionContext, time_to_ask
from providers.core.request import refuse_mistakes, refuse_payload, tenant_in
from providers.core.retry import countdown
from providers.models.calls import TaskState

# RabbitMQ takes a consumer for dead that has kept a message for half an hour; Redis goes by the visibility timeout.
KEPT_FOR = 1800.0
GRACE = 5.0
HIDDEN = "(hidden)"
# How long a task that the broker does not take back holds its place, before the broker is to deliver it again.
UNSENT_PAUSE = 5.0
# What is no failure of a call, and is told as it is.
MISTAKES = (ProviderUsageError, registry.UnknownProviderError, Ignore, Reject)
# How Celery tells that the broker does not answer.
BrokerLostError = OperationalError
# Beside a task's own arguments, what a replay asks instead of what they make.
AMENDED = "ergon_amended"


log = structlog.get_logger("ergon.providers")


class CeleryProviderTask(Task):
    """A task that calls one capability of a provider, once in each invocation.

    `ProviderBase.execute` owns the retries. The task only comes back later where that says so: while the provider is
    paused (rate limit, breaker), for as long as its `patience` lasts, and while the database is away. It never
    waits in its slot for that. A task makes its request once, however often it is delivered: without a key of its own
    the request is known by what it asks and by the task. With `deduplicate`, equal requests of other tasks are given
    the same answer, for as long as the provider's `replay_for` says.
    """

    abstract = True
    provider: str | ProviderBase | type[ProviderBase] = ""
    capability = ""
    timeout_budget = 60.0  # seconds that an invocation has, for calls and the waits between them
    deliveries = 5  # of a task whose processes die of it
    deduplicate = False  # whether equal requests of different tasks are made once; one task's always are
    patience = 3600.0  # seconds after its first invocation that a task goes on coming back to a paused provider

    soft_time_limit: float | None = None
    # What is kept as a dead letter is no surprise.
    throws = (ProviderError,)
    acks_late = True
    reject_on_worker_lost = True
    # Coming back ends by patience, not by counting.
    max_retries = None
    # Nothing that needs the database happens before the call decides what to do without one.
    track_started = False
    # Celery's own lines about a task would hold what was asked and what was answered.
    resultrepr_maxsize = 0
    typing = False

    def __init__(self) -> None:
        # For an implementation that does not keep to its time: where processes run tasks, it is interrupted.
        if self.soft_time_limit is None:
            self.soft_time_limit = self.timeout_budget + GRACE

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.request.deadline = time.monotonic() + self.timeout_budget
        self.request.has_asked = self.request.has_dead_letter = self.request.has_ended = False
        self.request.answered = None
        self.request.amended = kwargs.pop(AMENDED, None)
        self.request.sent = {"args": list(args), "kwargs": kwargs}
        self.request.task_id = self.request.id or f"direct-{uuid4()}"
        self.request.tenant_id = self._tenant_in(args, kwargs)
        self.request.invocation = invocations.begin(self.name, self.request.task_id, self.request.tenant_id)
        try:
            with self._calling():
                answer: Any = self.run(*args, **kwargs)
            answer = self.ask(*args, **kwargs) if answer is None and not self.request.has_asked else answer
        except Retry:
            self._end(TaskState.RESCHEDULED)
            raise
        except MISTAKES:
            self._end(TaskState.FAILED)
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is becomes one of ours)
            self._break_off(errors.canonical(error))
        if not self._end(TaskState.SUCCEEDED) and self._can_come_back():
            # Its result could not be kept either. It is not called again: the answer is kept, here or in the journal.
            self.request.has_ended = False
            self._come_back(not_kept())
        return answer

    def ask(
        self,
        *,
        tenant_id: str,
        operation: str,
        payload: dict[str, Any],
        campaign_id: str | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """The provider's answer. Otherwise this raises: the error, or that the task comes back later."""
        if self.request.has_asked:
            msg = f"{self.name} calls its provider twice in one invocation: a redelivery can only repeat one call"
            raise ProviderUsageError(msg)
        self.request.has_asked = True
        task_id, invocation = self.request.task_id, self.request.invocation
        if self.request.amended is not None:
            payload, idempotency_key = self.request.amended["payload"], self.request.amended["idempotency_key"]
            correlation_id = task_id
        correlation_id, tenant_id = correlation_id or task_id, tenant_in(tenant_id)
        refuse_mistakes({"tenant_id": tenant_id, "operation": operation, "correlation_id": correlation_id})
        refuse_payload(payload)
        provider = self.find_provider()
        asked: dict[str, Any] = {"tenant_id": tenant_id, "operation": operation, "payload": payload}
        if idempotency_key is None:
            request = provider.request_of(**asked)
            limit = time_to_ask(self.request.deadline - time.monotonic())
            is_shared = self.deduplicate or active_policy.governing(provider, limit).policy.deduplicate
            idempotency_key = request.key if is_shared else request.key_within(task_id)
        if tenant_id != self.request.tenant_id:
            invocations.name_tenant(invocation, tenant_id)
        context = ProviderExecutionContext(
            correlation_id=correlation_id,
            idempotency_key=idempotency_key,
            deadline=self.request.deadline,
            task_execution_id=invocation.id,
            task_name=self.name,
            task_arguments=None if type(self).run is CeleryProviderTask.run else self.request.sent,
            may_return=self._can_come_back(),
            patience=self.patience - invocation.since_first.total_seconds(),
            attempts_made=invocation.attempts_made,
        )
        return self._execute(provider, {**asked, "campaign_id": campaign_id, "context": context})

    # The body of an invocation; an override calls `ask`.
    run = ask

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        # Celery checks the arguments of functions only, and does not know ours.
        sent = {name: value for name, value in (kwargs or {}).items() if name != AMENDED}
        inspect.signature(self.run).bind(*(args or ()), **sent)
        options = {"argsrepr": HIDDEN, "kwargsrepr": HIDDEN} | options
        return super().apply_async(args, kwargs, **options)

    def after_return(self, *_: Any) -> None:
        if self.request.has_dead_letter:
            outbox.publish_at_once()

    def find_provider(self) -> ProviderBase:
        if isinstance(self.provider, ProviderBase):
            return self.provider
        if isinstance(self.provider, type):
            return registry.find(self.provider.provider_name, self.provider.capability)
        return registry.find(self.provider, self.capability)

    def _execute(self, provider: ProviderBase, asked: dict[str, Any]) -> dict[str, Any]:
        before, unfinished = self.request.invocation.dead_letter_reason, self.request.invocation.unfinished
        if before is not None:
            kind = errors.BY_REASON.get(before, ProviderTimeoutError)
            self._fail(kind("it had already failed before it was delivered again"), has_dead_letter=True)
        try:
            if unfinished >= self.deliveries:
                lost = ProviderInternalError(f"{unfinished} processes died during this call")
                with calls.answered_within(invocations.LONGEST):
                    provider.give_up(lost, attempts=unfinished, **asked)
                self._fail(lost, has_dead_letter=True)
            result = provider.execute(**asked)
        except (*calls.LOST, SoftTimeLimitExceeded) as error:
            # What it was doing is not written down, or it is not known whether it is.
            self._come_back(errors.canonical(error))
        self.request.answered = (provider, asked, self.request.invocation.attempts_made + len(result.attempts))
        if not result.is_kept and self._can_come_back():
            self._come_back(result.error or not_kept())
        if result.error is not None and result.outcome is Outcome.RETRY:
            self._come_back(result.error)
        if result.error is not None:
            self._fail(result.error, has_dead_letter=result.outcome is Outcome.DEAD_LETTER)
        # For a body that wants to know whose answer it has.
        self.request.source = result.source.value
        # As it is kept for the next one who asks the same.
        answer: dict[str, Any] = json.loads(calls.kept(result.payload))
        return answer

    def _fail(self, error: ProviderError, *, has_dead_letter: bool) -> NoReturn:
        self.request.has_dead_letter = has_dead_letter
        self._end(TaskState.FAILED)
        raise _bare(error)

    def _break_off(self, error: ProviderError) -> NoReturn:
        """The end by an error of the task's own; if it had an answer, what was asked is kept as a dead letter."""
        if self.request.has_ended:
            raise _bare(error)
        about = {"task_name": self.name, "task_id": self.request.task_id}
        log.error("provider task failed", **about, traceback=failures.traceback_of(error))
        if self.request.answered is None:
            self._fail(error, has_dead_letter=False)
        try:
            with calls.lost_connections_closed():
                self._keep_letter(error)
        except calls.LOST:
            self.request.has_ended = False
            self._come_back(error)
        self._fail(error, has_dead_letter=True)

    @retry_conflicts
    @short_transaction()
    def _keep_letter(self, error: ProviderError) -> None:
        """Keep the dead letter of a call that had an answer, together with the end of its invocation."""
        provider, asked, attempts = self.request.answered
        provider.record_dead_letter(error, attempts=attempts, **asked)
        self.request.has_ended = False  # where this is run again
        self._end(TaskState.FAILED)

    def _end(self, state: TaskState) -> bool:
        """Write down how the invocation ended, once: what `ask` said of it stands. Whether it is kept."""
        if self.request.has_ended:
            return True
        self.request.has_ended = True
        try:
            return invocations.end(self.request.invocation, state)
        except SoftTimeLimitExceeded:
            return False  # it is not known

    def _tenant_in(self, args: Any, kwargs: Any) -> str:
        """Whose it is, as far as its arguments say."""
        try:
            given = inspect.signature(self.run).bind(*args, **kwargs).arguments
            tenant_id: str = tenant_in(given.get("tenant_id"))
            refuse_mistakes({"tenant_id": tenant_id})
        except (TypeError, ProviderUsageError):
            return ""
        return tenant_id

    def _calling(self) -> AbstractContextManager[None]:
        """Around the body: functions that it calls are called for its tenant, within its time."""
        named = {"tenant_id": self.request.tenant_id} if self.request.tenant_id else {}
        return calling(**named, correlation_id=self.request.task_id, deadline=self.request.deadline)

    def _can_come_back(self) -> bool:
        """Only what a broker has delivered can be sent to it again."""
        return not (self.request.is_eager or self.request.called_directly)

    def _come_back(self, error: ProviderError) -> NoReturn:
        if not self._can_come_back():
            self._fail(error, has_dead_letter=False)
        self._end(TaskState.RESCHEDULED)
        kept_for = self.app.conf.broker_transport_options.get("visibility_timeout", KEPT_FOR)
        wait = countdown(
            error.retry_after,
            returns=self.request.retries,
            longest=min(kept_for, KEPT_FOR) / 2,
            random=random.random,
        )
        try:
            raise self.retry(countdown=wait, exc=_bare(error))
        except Reject as unsent:
            # Celery would drop it. Its message is still there: the broker is to deliver that again, but not at once.
            with suppress(SoftTimeLimitExceeded):
                time.sleep(min(wait, UNSENT_PAUSE))
            raise Reject(unsent.reason, requeue=True) from unsent


def not_kept() -> ProviderError:
    """The call has ended, and the database does not know it yet."""
    return ProviderDependencyError("the database could not keep the outcome", is_passing=True)


@worker_ready.connect
def _replay_journal(**_: Any) -> None:
    """Settle what the processes before this one could not."""
    calls.replay_known()
    connection.close()


@worker_process_shutdown.connect
def _show_last_calls(**_: Any) -> None:
    """Such a process ends without what others do at their exit."""
    calls.board.show_waiting()


def _bare(error: ProviderError) -> ProviderError:
    """Without what it came from, whose text may hold what must not be told."""
    error.__cause__, error.__context__, error.__suppress_context__ = None, None, True
    return error.with_traceback(None)


def site_app() -> Any:
    """The site's Celery app, with all tasks."""
    found = import_string(settings().celery_app)
    # Not by Celery's own way, which would run the checks of Django, which ask for this.
    autodiscover_modules("tasks")
    return found


def provider_tasks() -> list[CeleryProviderTask]:
    return [task for task in site_app().tasks.values() if isinstance(task, CeleryProviderTask)]


def send(task_name: str, sent: dict[str, Any], amended: dict[str, Any], *, task_id: str) -> None:
    """Send a task of this name; in the caller's transaction, which is undone if the broker does not take it.

    Without a broker it runs once the transaction has ended, since no provider is called within one.
    """
    celery = site_app()
    kwargs = sent["kwargs"] | {AMENDED: amended}
    order = partial(celery.tasks[task_name].apply_async, sent["args"], kwargs, task_id=task_id)
    if celery.conf.task_always_eager:
        transaction.on_commit(order)
        return
    with _connected(celery) as line:
        order(connection=line, retry=False)


def reach_broker() -> None:
    """Raise if the broker that tasks are sent to does not answer."""
    celery = site_app()
    if not celery.conf.task_always_eager:
        with _connected(celery):
            pass


def _connected(celery: Any) -> AbstractContextManager[Any]:
    """A new connection with short limits. Those that Celery keeps may have been lost since, and wait for longer."""
    options = transport_options(celery.conf.broker_write_url, SHORT_LIMIT)
    return connected(celery.connection_for_write(connect_timeout=SHORT_LIMIT, transport_options=options))
