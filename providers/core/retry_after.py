"""Parses the Retry-After header, in seconds or as a date."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def seconds_of(value: str | None, now: datetime) -> float | None:
    """The seconds that a header asks for; None if there is none, or none that can be read."""
    text = (value or "").strip()
    if not text:
        return None
    if text.replace(".", "", 1).isdecimal() and text.isascii():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # A date without a zone is taken as the standard wants all of them: in UTC.
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())
