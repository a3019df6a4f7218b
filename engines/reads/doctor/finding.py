"""The finding of a check."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """A warning is worth a look; a problem is why the doctor's exit code is not 0."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check, and what to do about it."""

    check: str
    level: Level
    text: str
    hint: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, hint: str) -> Finding:
    return Finding(check, Level.WARNING, text, hint)


def problem(check: str, text: str, hint: str) -> Finding:
    return Finding(check, Level.PROBLEM, text, hint)


def graded(check: str, text: str, hint: str, *, is_problem: bool, is_warning: bool) -> Finding:
    """The finding of a measurement that has two limits."""
    if is_problem:
        return problem(check, text, hint)
    return warning(check, text, hint) if is_warning else ok(check, text)
