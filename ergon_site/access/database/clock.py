"""The database's time: leases, schedules and ages go by it, so that no host's clock matters."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime

# Seconds. The database's clock may be set as well, and a connection is kept for weeks.
KEPT_FOR = 60.0
# What the database told last, and when, by a clock that nobody sets.
_told: tuple[datetime, float] | None = None


def database_time() -> datetime:
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        return note(cursor.fetchone()[0])


def note(told: datetime) -> datetime:
    """Remember what PostgreSQL tells: whenever it is asked, and as each connection opens."""
    global _told  # noqa: PLW0603 (one for the process)
    _told = told.astimezone(UTC), time.monotonic()
    return _told[0]


def page_time() -> datetime:
    """The database's time for pages, mostly without a statement: counted on from what it told last."""
    if connection.vendor != "postgresql":
        return timezone.now()
    passed = KEPT_FOR if _told is None else time.monotonic() - _told[1]
    return database_time() if _told is None or passed >= KEPT_FOR else _told[0] + timedelta(seconds=passed)


def as_time(value: Any) -> datetime:
    """A time in the answer to a plain statement: SQLite tells it as a text, or without its zone, which is UTC."""
    found = value if isinstance(value, datetime) else parse_datetime(value) or datetime.min  # noqa: DTZ901
    return found.astimezone(UTC) if timezone.is_aware(found) else timezone.make_aware(found, UTC)
