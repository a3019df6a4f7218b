"""The database's time: leases, schedules and ages go by it, so that no host's clock matters."""

from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime


def database_time() -> datetime:
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now.astimezone(UTC)


def as_time(value: Any) -> datetime:
    """A time in the answer to a plain statement: SQLite tells it as a text, or without its zone, which is UTC."""
    found = value if isinstance(value, datetime) else parse_datetime(value) or datetime.min  # noqa: DTZ901
    return found.astimezone(UTC) if timezone.is_aware(found) else timezone.make_aware(found, UTC)
