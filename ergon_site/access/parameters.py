"""Checks of query parameters, and the conditions that they put on rows. A value that will not do is a ValueError."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from django.db.models import Q
from django.utils.dateparse import parse_datetime

LONGEST_TEXT = 200
LONGEST_TIME = 64

Filters = Mapping[str, Callable[[str], Q]]


def conditions(asked: Mapping[str, str], known: Filters, refusal: Callable[[str, str], Exception]) -> dict[str, Q]:
    """The condition of each filter that is given, in the order of those that are known."""
    found = {}
    for name in known:
        if name in asked:
            try:
                found[name] = known[name](asked[name])
            except ValueError as error:
                raise refusal(name, str(error)) from None
    return found


def short_text(given: str) -> str:
    if not 0 < len(given) <= LONGEST_TEXT or "\x00" in given:
        msg = f"This must be a text of 1 to {LONGEST_TEXT} characters."
        raise ValueError(msg)
    return given


def one_of(words: list[str], word: str) -> str:
    if word not in words:
        msg = f"This must be one of {', '.join(words)}."
        raise ValueError(msg)
    return word


def address_time(given: str) -> datetime:
    """The time in a query string, where a plus sign is a space."""
    try:
        return instant(given)
    except ValueError:
        return instant(given.replace(" ", "+"))


def instant(given: object) -> datetime:
    """The time that an ISO 8601 text with a time zone says, in UTC."""
    try:
        found = parse_datetime(given) if isinstance(given, str) and len(given) <= LONGEST_TIME else None
        if found is not None and found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    msg = "This must be a time in ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z."
    raise ValueError(msg)
