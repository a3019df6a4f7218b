"""The circumstances of calls, which go with the caller's context: for whom, why and until when functions are called."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from engines.drivers.attempts import current_attempt
from providers.core.errors import ProviderUsageError
from providers.core.exchange import ProviderExecutionContext
from providers.core.request import refuse_mistakes, tenant_in

_NOT_GIVEN: Any = object()
# The least time that an attempt is said to have: client libraries take 0 for a mistake, or for no limit.
LEAST = 0.001


@dataclass(frozen=True, slots=True)
class Circumstances:
    tenant_id: str | None = None
    campaign_id: str | None = None
    correlation_id: str | None = None
    deadline: float | None = None
    idempotency_key: str | None = None

    def context(self) -> ProviderExecutionContext:
        """The context of a call under these circumstances; in a task of the engines within the time of its attempt."""
        return ProviderExecutionContext(
            correlation_id=self.correlation_id or _new_correlation(),
            idempotency_key=self.idempotency_key,
            deadline=nearer(self.deadline, current_attempt().ends_at),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentCall:
    """The attempt that a function is called for."""

    tenant_id: str
    campaign_id: str | None
    correlation_id: str
    idempotency_key: str | None  # if a key guards the call
    attempt: int  # from 1
    ends_at: float | None  # of the monotonic clock

    @property
    def remaining(self) -> float | None:
        """Seconds that this attempt has left, None if nothing limits it."""
        return None if self.ends_at is None else max(LEAST, self.ends_at - time.monotonic())


_around: ContextVar[Circumstances] = ContextVar("ergon_calling", default=Circumstances())  # noqa: B039 (frozen)
_current: ContextVar[CurrentCall] = ContextVar("ergon_current_call")


@contextmanager
def calling(
    *,
    tenant_id: str | UUID = _NOT_GIVEN,
    campaign_id: str | None = None,
    correlation_id: str | None = None,
    deadline: float | None = None,
    idempotency_key: str | None = None,
) -> Iterator[None]:
    """Say for whom functions are called in the block. What is not given is as around it; the nearer deadline counts.

    Whoever gives a tenant gives one: None is refused, not replaced by that of an outer block.
    """
    outer = _around.get()
    tenant = outer.tenant_id if tenant_id is _NOT_GIVEN else tenant_in(tenant_id)
    if tenant_id is not _NOT_GIVEN:
        refuse_mistakes({"tenant_id": tenant})
    inner = Circumstances(
        tenant,
        campaign_id or outer.campaign_id,
        # The calls of a block belong together.
        correlation_id or outer.correlation_id or _new_correlation(),
        nearer(deadline, outer.deadline),
        idempotency_key or outer.idempotency_key,
    )
    token = _around.set(inner)
    try:
        yield
    finally:
        _around.reset(token)


def circumstances() -> Circumstances:
    return _around.get()


def current_call() -> CurrentCall:
    """The attempt that is being made, for the function that makes it, in its thread or task."""
    try:
        return _current.get()
    except LookupError:
        msg = "no call is being made: current_call() is for functions that providers.call has decorated"
        raise ProviderUsageError(msg) from None


@contextmanager
def attempting(call: CurrentCall) -> Iterator[None]:
    """Around one attempt. What it calls in turn is called for the same tenant, within its time, and without its key."""
    inner = Circumstances(call.tenant_id, call.campaign_id, call.correlation_id, call.ends_at)
    current, around = _current.set(call), _around.set(inner)
    try:
        yield
    finally:
        _around.reset(around)
        _current.reset(current)


def _new_correlation() -> str:
    """The transaction that a task of the engines works on, or an id of its own."""
    transaction_id = current_attempt().transaction_id
    try:
        refuse_mistakes({"correlation_id": transaction_id})
    except ProviderUsageError:  # there is none, or it is too long
        return uuid4().hex
    return str(transaction_id)


def nearer(*deadlines: float | None) -> float | None:
    """The first of several deadlines, None if there is none."""
    return min((one for one in deadlines if one is not None), default=None)
