"""The steps of one execution, which are yielded to a driver; their outcomes are sent back."""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from providers.core.breaker import Verdict
from providers.core.errors import ProviderError
from providers.core.exchange import Outcome, Source
from providers.core.gate import NOTHING, Admission, Reservation


class Claim(NamedTuple):
    """Take the request's key. Answer: Claimed, Replay, Busy, Taken or StoreLost."""


class Claimed(NamedTuple):
    token: str | None = None


class Replay(NamedTuple):
    """The request succeeded before."""

    payload: dict[str, Any]


class Busy(NamedTuple):
    """The same request is under way."""

    retry_after: float


class Taken(NamedTuple):
    """The key belongs to another request."""


class StoreLost(NamedTuple):
    """The database is away, and calls without it are not allowed; or the call was made without it."""

    is_local: bool = False


class Admit(NamedTuple):
    """Ask the gate for one attempt. Answer: an Admission, or StoreLost."""

    attempt: int
    cost: int


class Call(NamedTuple):
    """Make the attempt. Answer: Answered or Failed."""

    attempt: int
    timeout: float | None


class Answered(NamedTuple):
    payload: dict[str, Any]
    http_status: int | None = None


class Failed(NamedTuple):
    error: ProviderError


class Settle(NamedTuple):
    """Write down how an attempt ended. Answer: RETRY, SUPPRESSED, SHUT, ENDED, or StoreLost if it could not be."""

    attempt: int
    admission: Admission
    duration: float
    budget: float | None  # the time that the attempt had
    verdict: Verdict
    outcome: Outcome  # if it is not tried again
    wants_retry: bool = False
    error: ProviderError | None = None
    payload: dict[str, Any] | None = None
    http_status: int | None = None
    refund: Reservation = NOTHING
    refunds_retry: bool = False
    cooldown: float | None = None
    lasts: float = 0.0  # for how long it may still be under way, if it is tried again
    returns_if_shut: bool = False  # if the breaker is open now, the task comes back: this is not its end
    is_repeat: bool = False  # it was asked for before, and nobody knows whether it was carried out


class Spool(NamedTuple):
    """Keep on this host how an attempt ended, until the database can take it."""

    settlement: Settle


class Refuse(NamedTuple):
    """Write down that an attempt was not made. Answer: StoreLost if that could not be."""

    attempt: int
    error: ProviderError
    outcome: Outcome
    refund: Reservation = NOTHING
    ends_execution: bool = False  # attempts were made before it


class LookUp(NamedTuple):
    """Look for a kept answer to the same request, younger than so many seconds. Answer: Cached, or None."""

    age: float


class Cached(NamedTuple):
    payload: dict[str, Any]
    age: float


class Keep(NamedTuple):
    """Keep the provider's answer for whoever asks the same again."""

    payload: dict[str, Any]


class FallBack(NamedTuple):
    """Ask the provider's own `fallback`. Answer: a dict, or None if it has no answer."""

    error: ProviderError
    timeout: float | None


class StandIn(NamedTuple):
    """Write down that an answer is not the provider's. Answer: StoreLost if that could not be."""

    attempt: int
    source: Source
    payload: dict[str, Any]
    error: ProviderError | None = None
    duration: float = 0.0


class GiveUp(NamedTuple):
    """Keep the dead letter of a task for which nothing stood in. Answer: StoreLost if that could not be."""

    attempt: int
    error: ProviderError
    attempts_made: int


class Sleep(NamedTuple):
    seconds: float


class StoppedError(BaseException):
    """Thrown into the rules when the caller breaks an execution off: they settle what is open, and end."""


Step: TypeAlias = Claim | Admit | Call | Settle | Spool | Refuse | LookUp | Keep | FallBack | StandIn | GiveUp | Sleep
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]
