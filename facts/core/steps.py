"""The steps of a client of the boundary, the values that answer them, and how an answer is read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, TypeVar

from facts.core.errors import FactError, UnreachableError, error_for

PATIENCE = 30.0
ERRORS, SERVER_ERRORS, TOO_MANY = 400, 500, 429
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request; the answer is what comes back, an exception if none does."""

    method: str
    path: str
    content: "bytes | IO[bytes] | None" = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    timeout: float = PATIENCE


class Pause(NamedTuple):
    """Wait so many seconds, or until somebody wants an end."""

    seconds: float


class Hand(NamedTuple):
    """Give a fact to a handler."""

    handler: Callable[[Any], Any]
    fact: "Fetched"


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None = None


class NoAnswerError(Exception):
    """Thrown into a rule by whoever performs it: the request got no answer."""


class Appended(NamedTuple):
    """The offset of a fact in the log of its boundary."""

    offset: int
    message_id: str
    is_duplicate: bool


class Stored(NamedTuple):
    """An artifact as the boundary keeps it."""

    bucket: str
    key: str
    digest: str
    size: int
    media_type: str


class Fetched(NamedTuple):
    """A fact and its place."""

    offset: int
    envelope: dict[str, Any]
    fact: dict[str, Any]


class Page(NamedTuple):
    """The facts after a cursor."""

    facts: list[Fetched]
    cursor: int


class Reader(NamedTuple):
    """A consumer: which boundary it reads, how far it is, and how far it could be."""

    name: str
    from_zone: str
    to_zone: str
    cursor: int
    newest: int


def read(answer: Answer, parse: Callable[[Any], T]) -> T:
    """The content of an answer; raises the error that it describes."""
    try:
        told = json.loads(answer.body)
        if answer.status < ERRORS:
            return parse(told)
        error = _error_in(told)
    except UNREADABLE:
        unreadable = f"the answer ({answer.status}) does not come from a boundary: is the address right?"
        error = UnreachableError(unreadable)
        error.may_pass = answer.status >= SERVER_ERRORS or answer.status == TOO_MANY
        raise error from None
    if answer.status >= SERVER_ERRORS:
        msg = f"the boundary failed: {error.message}"
        raise UnreachableError(msg)
    error.may_pass = answer.status == TOO_MANY
    if answer.retry_after and answer.retry_after.isdecimal():
        error.retry_after = int(answer.retry_after)
    raise error


def _error_in(problem: Mapping[str, Any]) -> FactError:
    faults = problem.get("errors") or [{}]
    error = error_for(str(problem["code"]), str(problem["detail"]), faults[0].get("pointer", ""))
    # One of many has no header of its own that would tell.
    if type(wait := problem.get("retry_after")) is int:
        error.retry_after = wait
    return error


def stored(told: Mapping[str, Any]) -> Stored:
    return Stored(*(told[name] for name in Stored._fields))


def appended(told: Mapping[str, Any]) -> Appended:
    return Appended(told["offset"], told["message_id"], told["duplicate"])


def results(told: Mapping[str, Any]) -> list[Appended | FactError]:
    return [_error_in(one["problem"]) if "problem" in one else appended(one) for one in told["results"]]


def fetched(told: Mapping[str, Any]) -> Fetched:
    return Fetched(told["offset"], told["envelope"], told["fact"])


def page(told: Mapping[str, Any]) -> Page:
    return Page([fetched(one) for one in told["facts"]], told["cursor"])


def reader(told: Mapping[str, Any]) -> Reader:
    return Reader(*(told[name] for name in Reader._fields))
