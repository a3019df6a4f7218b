"""The base class of providers: a name, a capability, an implementation; and `execute`, the one way to call it."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import structlog
from asgiref.sync import sync_to_async

from engines.drivers.attempts import current_transaction
from providers import active_policy, calls, telemetry
from providers.core import calling
from providers.core.breaker import BreakerPolicy, OpeningRules
from providers.core.errors import ProviderError
from providers.core.exchange import (
    CallRequest,
    Outcome,
    ProviderExecutionContext,
    ProviderExecutionResult,
    Source,
    Who,
    time_to_ask,
)
from providers.core.limits import BulkheadPolicy, RateLimit
from providers.core.policy import ProviderPolicy
from providers.core.request import Request, caller_in, refuse_deadline, refuse_mistakes, refuse_payload
from providers.core.retry import RetryBudget, RetryPolicy
from providers.core.steps import Refuse
from providers.drivers.performing import Work, aperform, perform
from providers.drivers.store import Store

log = structlog.get_logger("ergon.providers")
_is_logged = logging.getLogger("ergon.providers").isEnabledFor
_DEFAULTS = ProviderPolicy()


class ProviderBase(ABC):
    """A capability of an outside provider.

    Subclasses name themselves and write `_execute_impl`, which makes one attempt: it returns a dict, raises, and keeps
    to `context.timeout`. Everything around it (quota, breaker, retries, idempotency, metrics, health) is here. The
    other class attributes are defaults of the policy.
    """

    provider_name: ClassVar[str]
    capability: ClassVar[str]
    version: ClassVar[int] = 1
    # Of each operation, the fields of the payload that make it the same request; others count whole.
    idempotency_fields: ClassVar[Mapping[str, Sequence[str]]] = {}

    retry_policy: ClassVar[RetryPolicy] = _DEFAULTS.retry
    breaker_policy: ClassVar[BreakerPolicy] = _DEFAULTS.breaker
    opening_rules: ClassVar[OpeningRules] = _DEFAULTS.opening
    retry_budget: ClassVar[RetryBudget] = _DEFAULTS.budget
    timeout: ClassVar[float | None] = _DEFAULTS.timeout
    retry_after_ceiling: ClassVar[float] = _DEFAULTS.retry_after_ceiling
    count_rate_limited: ClassVar[bool] = _DEFAULTS.count_rate_limited
    quota_per_attempt: ClassVar[bool] = _DEFAULTS.quota_per_attempt
    cost: ClassVar[int] = _DEFAULTS.cost
    on_store_failure: ClassVar[str] = _DEFAULTS.on_store_failure
    probe_lease: ClassVar[float] = _DEFAULTS.probe_lease
    deduplicate: ClassVar[bool] = _DEFAULTS.deduplicate
    idempotency_lease: ClassVar[float] = _DEFAULTS.idempotency_lease
    idempotency_wait: ClassVar[float] = _DEFAULTS.idempotency_wait
    replay_for: ClassVar[float] = _DEFAULTS.replay_for
    breaker_scope: ClassVar[str] = _DEFAULTS.breaker_scope
    pause_scope: ClassVar[str] = _DEFAULTS.pause_scope
    cache_for: ClassVar[float | None] = _DEFAULTS.cache_for
    stale_for: ClassVar[float | None] = _DEFAULTS.stale_for
    bulkhead: ClassVar[BulkheadPolicy] = _DEFAULTS.bulkhead
    rate_limit: ClassVar[RateLimit] = _DEFAULTS.rate_limit
    max_wait: ClassVar[float] = _DEFAULTS.max_wait

    @abstractmethod
    def _execute_impl(
        self,
        *,
        tenant_id: str,
        campaign_id: str | None,
        operation: str,
        payload: dict[str, Any],
        context: ProviderExecutionContext,
    ) -> dict[str, Any]:
        """Make one attempt."""

    # A subclass that can be awaited says how; otherwise its `_execute_impl` runs in a thread.
    _aexecute_impl: Any = None

    def fallback(self, request: Request, error: ProviderError) -> dict[str, Any] | None:
        """The answer to a request that has failed for good, or None to let it fail. It must be quick."""
        return None

    # Likewise for `aexecute`, if a subclass has something to await.
    afallback: Any = None

    def execute(
        self,
        *,
        tenant_id: str,
        campaign_id: str | None = None,
        operation: str,
        payload: dict[str, Any],
        context: ProviderExecutionContext,
    ) -> ProviderExecutionResult:
        """Call the provider under its policy. It always returns a result; only mistakes of the program raise."""
        ticket = self._checked_ticket(tenant_id, campaign_id, operation, payload, context)
        labels = telemetry.labels_of(ticket)
        with telemetry.executing(labels, tenant_id=tenant_id, correlation_id=context.correlation_id) as span:
            return perform(*self._parts(ticket, labels, span))

    async def aexecute(
        self,
        *,
        tenant_id: str,
        campaign_id: str | None = None,
        operation: str,
        payload: dict[str, Any],
        context: ProviderExecutionContext,
    ) -> ProviderExecutionResult:
        """The same on the event loop, by the same rules."""
        asked = (tenant_id, campaign_id, operation, payload, context)
        # A hop to a thread costs a quarter of a call: where nothing asks the database, there is none.
        is_asked = type(self).account_of is not ProviderBase.account_of
        known = None if is_asked else active_policy.remembered(self)
        ticket = self._ticket(*asked, known) if known else await sync_to_async(self._checked_ticket)(*asked)
        labels = telemetry.labels_of(ticket)
        with telemetry.executing(labels, tenant_id=tenant_id, correlation_id=context.correlation_id) as span:
            return await aperform(*self._parts(ticket, labels, span, is_checked=known is None))

    def account_of(self, tenant_id: str) -> str:
        """The account at the provider that a tenant's calls use. All share one, unless a subclass knows more."""
        return ""

    def give_up(self, error: ProviderError, *, attempts: int, **asked: Any) -> None:
        """Keep the dead letter of a request that is not made any more. It takes what `execute` takes."""
        ticket = self._ticket(**{"campaign_id": None, **asked})
        calls.refuse_open_transaction()
        calls.refuse(ticket, Refuse(attempts + 1, error, Outcome.DEAD_LETTER))
        _log_end(ticket, Outcome.DEAD_LETTER, error, attempts)

    def record_dead_letter(self, error: ProviderError, *, attempts: int, **asked: Any) -> None:
        """Keep the dead letter of a request that was made, and whose answer nobody could use. Nothing was refused."""
        ticket = self._ticket(**{"campaign_id": None, **asked})
        calls.record_dead_letter(ticket, error, attempts)
        _log_end(ticket, Outcome.DEAD_LETTER, error, attempts)

    def request_of(self, *, tenant_id: str, operation: str, payload: dict[str, Any]) -> Request:
        """The request with its idempotency key: the same request has the same key."""
        who = Who.of(tenant_id, self.provider_name, self.capability)
        return Request(*who, operation, self.version, payload, self.idempotency_fields.get(operation))

    def _checked_ticket(self, *asked: Any) -> CallRequest:
        calls.refuse_open_transaction()
        return self._ticket(*asked)

    def _ticket(
        self,
        tenant_id: str,
        campaign_id: str | None,
        operation: str,
        payload: dict[str, Any],
        context: ProviderExecutionContext,
        governing: active_policy.Governing | None = None,
    ) -> CallRequest:
        who = Who.of(tenant_id, self.provider_name, self.capability)
        asked = {"operation": operation, "campaign_id": None if campaign_id == "" else campaign_id}
        keys = {"correlation_id": context.correlation_id, "idempotency_key": context.idempotency_key}
        refuse_mistakes({**who._asdict(), **asked, **keys})
        refuse_payload(payload)
        refuse_deadline(context.deadline, time.monotonic())
        request = self.request_of(tenant_id=tenant_id, operation=operation, payload=payload)
        key, fingerprint = request.digests()
        governing = governing or active_policy.governing(self, time_to_ask(context.left(time.monotonic())))
        account = Who.of_account(self.provider_name, self.account_of(who.tenant_id))
        return CallRequest(
            who=who,
            operation=operation,
            key=context.idempotency_key or key,
            fingerprint=fingerprint,
            policy=governing.policy,
            context=context,
            account=account.tenant_id,
            campaign_id=campaign_id,
            payload=payload,
            version=self.version,
            policy_version=governing.number,
            asked_at=time.time(),
            transaction_id=caller_in(current_transaction(), context.correlation_id),
        )

    def _parts(
        self, ticket: CallRequest, labels: Mapping[str, str], span: Any, *, is_checked: bool = True
    ) -> tuple[Any, Work, Store]:
        """The rules, what they call and what they ask."""
        context = ticket.context
        has_fallback = self._has_fallback(ticket.operation)
        terms: dict[str, Any] = {"key": ticket.key, "is_guarded": ticket.is_guarded, "has_fallback": has_fallback}
        execution = calling.Execution(ticket.policy, context, time.monotonic, **terms)
        asked: dict[str, Any] = {
            "tenant_id": ticket.who.tenant_id,
            "campaign_id": ticket.campaign_id,
            "operation": ticket.operation,
            "payload": ticket.payload,
        }
        asynchronous = self._aexecute_impl and partial(self._aexecute_impl, **asked)
        # A key that guards the request is the attempts' to know: a provider may keep to it as well.
        known = replace(context, idempotency_key=ticket.key) if ticket.is_guarded else context
        told = partial(_told, ticket, labels, span)
        fallback = partial(self._fall_back, ticket)
        work = Work(known, labels, partial(self._execute_impl, **asked), asynchronous, told, fallback)
        return calling.execute(execution), work, Store(ticket, time.monotonic, is_checked=is_checked)

    def _has_fallback(self, operation: str) -> bool:
        return type(self).fallback is not ProviderBase.fallback or self.afallback is not None

    def _fall_back(self, ticket: CallRequest, error: ProviderError, *, is_awaited: bool) -> Any:
        """The fallback's answer; awaited, a coroutine of it, if there is one."""
        request = self.request_of(
            tenant_id=ticket.who.tenant_id, operation=ticket.operation, payload=dict(ticket.payload)
        )
        if not is_awaited:
            return self.fallback(request, error)
        awaitable = self.afallback or sync_to_async(self.fallback, thread_sensitive=False)
        return awaitable(request, error)


def _told(
    ticket: CallRequest, labels: Mapping[str, str], span: Any, result: ProviderExecutionResult
) -> ProviderExecutionResult:
    """Log an execution, and count it."""
    about = {} if result.source is Source.PROVIDER else {"source": result.source.value}
    _log_end(ticket, result.outcome, result.error or result.original_error, len(result.attempts), **about)
    return telemetry.executed(span, labels, result)


def _log_end(ticket: CallRequest, outcome: Outcome, error: ProviderError | None, attempts: int, **about: str) -> None:
    """Log how an execution ended in one line, with the fields that the documents name."""
    level = logging.INFO if outcome is Outcome.SUCCESS else logging.WARNING
    if not _is_logged(level):  # its fields are dear
        return
    log.log(
        level,
        "provider execution",
        **ticket.who._asdict(),
        campaign_id=ticket.campaign_id,
        operation=ticket.operation,
        correlation_id=ticket.context.correlation_id,
        idempotency_key=ticket.key,
        attempt=attempts,
        reason_code=None if error is None else error.reason_code,
        outcome=outcome.value,
        **about,
    )
