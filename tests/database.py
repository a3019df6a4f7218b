"""The test database between tests: emptied, append-only tables too, and refilled with what migrations put in."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test import TransactionTestCase

_migrated = ""


def remember() -> None:
    """Keep what the migrations put in."""
    global _migrated  # noqa: PLW0603 (connections come and go, the rows are those of the run)
    _migrated = connection.creation.serialize_db_to_string()


def clean(case: TransactionTestCase) -> None:
    """Empty every table and put back the rows of the data migrations."""
    # Told that it will be refilled, Django does not make such rows anew under other keys.
    case.serialized_rollback = True
    connection._test_serialized_contents = _migrated  # type: ignore[attr-defined]
    with append_only_lifted():
        django_clean(case)
        connection.creation.deserialize_db_from_string(_migrated)


django_clean = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]


@contextmanager
def append_only_lifted() -> Iterator[None]:
    """Take the triggers away for a moment; nothing outside the tests can."""
    lift, restore = _triggers()
    with connection.cursor() as cursor:
        for statement in lift:
            cursor.execute(statement)
        yield
        for statement in restore:
            cursor.execute(statement)


def _triggers() -> tuple[list[str], list[str]]:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%append_only%'")
            rows = cursor.fetchall()
            return [f"DROP TRIGGER {name}" for name, _ in rows], [sql for _, sql in rows]
        cursor.execute("SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE tgname LIKE '%append_only'")
        rows = cursor.fetchall()
        return (
            [f"ALTER TABLE {table} DISABLE TRIGGER {name}" for table, name in rows],
            [f"ALTER TABLE {table} ENABLE TRIGGER {name}" for table, name in rows],
        )
