"""Times in requests."""

from datetime import UTC, datetime

from django.utils.dateparse import parse_datetime

LONGEST = 64


def instant(text: object) -> datetime:
    """The time that an ISO 8601 text with a time zone says, in UTC."""
    try:
        time = parse_datetime(text) if isinstance(text, str) and len(text) <= LONGEST else None
        if time is not None and time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    msg = "This must be a time in ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z."
    raise ValueError(msg)
