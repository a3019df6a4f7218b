"""Interprets the boundary's answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from facts.core.errors import FactError, UnreachableError, error_for
from facts.core.steps import Answer, Appended, Fetched, Page, Reader, Stored

ERRORS, SERVER_ERRORS, TOO_MANY = 400, 500, 429
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)

T = TypeVar("T")


def read(answer: Answer, parse: Callable[[Any], T]) -> T:
    """The content of an answer; raises the error that it describes."""
    if answer.status >= ERRORS:
        raise _problem(answer)
    try:
        return parse(json.loads(answer.body))
    except UNREADABLE:
        raise _not_of_the_boundary(answer) from None


def _problem(answer: Answer) -> FactError:
    try:
        error = _error_in(json.loads(answer.body))
    except UNREADABLE:
        return _not_of_the_boundary(answer)
    if answer.status >= SERVER_ERRORS:
        return UnreachableError(f"the boundary failed: {error.message}")
    error.may_pass = answer.status == TOO_MANY
    if answer.retry_after and answer.retry_after.isdecimal():
        error.retry_after = int(answer.retry_after)
    return error


def _not_of_the_boundary(answer: Answer) -> UnreachableError:
    error = UnreachableError(f"the answer ({answer.status}) does not come from a boundary: is the address right?")
    error.may_pass = answer.status >= SERVER_ERRORS or answer.status == TOO_MANY
    return error


def _error_in(problem: Mapping[str, Any]) -> FactError:
    faults: Sequence[Mapping[str, str]] = problem.get("errors") or [{}]
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
