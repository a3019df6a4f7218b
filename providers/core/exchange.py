"""The input and output of a call, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import uuid4

from providers.core.errors import ProviderError
from providers.core.gate import EVERY
from providers.core.policy import ProviderPolicy
from providers.core.request import tenant_in

# A lease outlives the deadline of whoever holds it: nobody else may begin while it may still be calling.
SLACK = 5.0
# Seconds that the database has for an answer.
MOST, LEAST = 5.0, 0.2


class Outcome(StrEnum):
    """The outcome of an attempt or execution; an execution that ends with `retry` is to be made again later."""

    SUCCESS = "success"
    RETRY = "retry"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"


class Source(StrEnum):
    """The origin of an answer: the provider, or what stands in for it."""

    PROVIDER = "provider"
    CACHE = "cache"  # a kept answer, young enough that the provider was not asked
    STALE = "stale"  # a kept answer, because the provider failed or the call was refused
    FALLBACK = "fallback"


class Who(NamedTuple):
    """A capability of a provider, for one tenant."""

    tenant_id: str
    provider_name: str
    capability: str

    @classmethod
    def of(cls, tenant_id: Any, provider_name: str, capability: str) -> "Who":
        """As people and programs name it."""
        return cls(tenant_in(tenant_id), provider_name, capability)

    @classmethod
    def of_account(cls, provider_name: str, account: str = "") -> "Who":
        """All capabilities of a provider, for all tenants that share an account."""
        return cls(f"{EVERY}{account}", provider_name, EVERY)

    @property
    def is_account(self) -> bool:
        return self.capability == EVERY and self.tenant_id.startswith(EVERY)

    @property
    def title(self) -> str:
        if not self.is_account:
            return f"{self.provider_name} {self.capability} of {self.tenant_id}"
        name = self.tenant_id.removeprefix(EVERY)
        return f"{self.provider_name} of all tenants" + (f" of the account {name}" if name else "")


@dataclass(frozen=True, slots=True)
class ProviderExecutionContext:
    """The circumstances of a call.

    `deadline` is a time of the monotonic clock that covers calls and waits. `attempt` and `timeout` are filled in for
    each attempt: an implementation gives up after `timeout` seconds. Whoever names a task (`task_name`) wants
    terminal failures kept as dead letters; whoever `may_return` comes back by itself when the provider is paused,
    unless the pause is longer than its `patience`. The attempts that it made before it came back count, too.
    """

    correlation_id: str = field(default_factory=lambda: uuid4().hex)
    idempotency_key: str | None = None
    deadline: float | None = None
    task_execution_id: int | None = None
    task_name: str | None = None
    task_arguments: Mapping[str, Any] | None = None  # what the task was sent, where that is not the request itself
    may_return: bool = False
    patience: float | None = None
    attempts_made: int = 0
    attempt: int = 1
    timeout: float | None = None

    def left(self, now: float) -> float | None:
        """The seconds until the deadline; None if there is none."""
        return None if self.deadline is None else self.deadline - now


def time_to_ask(left: float | None, least: float = LEAST) -> float:
    """The seconds that the database has for an answer: half of what a call has left, so that the rest is left."""
    return MOST if left is None else min(MOST, max(least, left / 2))


@dataclass(slots=True, kw_only=True)
class CallRequest:
    """A request with its caller and policy, and the token of its claim while it holds one."""

    who: Who
    operation: str
    key: str
    fingerprint: str
    policy: ProviderPolicy
    context: ProviderExecutionContext
    account: str = EVERY
    campaign_id: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    policy_version: int | None = None
    # Tells this call from all others: what is settled twice is seen by it, and it is the token of the claim.
    call_id: str = field(default_factory=lambda: uuid4().hex)
    asked_at: float = 0.0  # seconds since 1970
    token: str | None = None
    # The transaction that it is made for, if that is not the correlation id.
    transaction_id: str | None = None

    @property
    def is_guarded(self) -> bool:
        """Whether its key keeps it from being made twice."""
        return self.context.idempotency_key is not None or self.policy.deduplicate

    @property
    def account_gate(self) -> Who:
        return Who(self.account, self.who.provider_name, EVERY)


class ProviderAnswer(dict[str, Any]):
    """An answer, with the status that it came with; a plain dict is one too."""

    def __init__(self, payload: Mapping[str, Any], *, http_status: int | None = None) -> None:
        super().__init__(payload)
        self.http_status = http_status


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    duration_ms: float
    outcome: Outcome
    reason_code: str | None = None
    http_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderExecutionResult:
    outcome: Outcome
    payload: dict[str, Any] | None = None
    attempts: tuple[Attempt, ...] = ()
    error: ProviderError | None = None
    duration_ms: float = 0.0
    retry_after: float | None = None
    replayed: bool = False
    retry_suppressed: bool = False
    is_kept: bool = True  # how it ended is written down in the database
    source: Source = Source.PROVIDER
    age: float | None = None  # seconds since the provider gave an answer that was kept
    original_error: ProviderError | None = None  # what an answer stands in for
    correlation_id: str = ""
    idempotency_key: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.SUCCESS

    @property
    def reason_code(self) -> str | None:
        return None if self.error is None else self.error.reason_code

    def raise_for_failure(self) -> None:
        if self.error is not None:
            raise self.error
