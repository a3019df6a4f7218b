"""The database's time: leases, schedules and ages go by it, so that no host's clock matters."""

from datetime import UTC, datetime

from django.db import connection
from django.utils import timezone


def database_time() -> datetime:
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now.astimezone(UTC)
