"""The test database between tests: emptied, with append-only tables included, and refilled with what migrations put in."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test import TransactionTestCase


def remember() -> None:
    """Keep what the migrations put in."""
    connection._test_serialized_contents = connection.creation.serialize_db_to_string()  # type: ignore[attr-defined]


def clean(case: TransactionTestCase) -> None:
    """Empty every table and put back the rows of the data migrations."""
    case.serialized_rollback = True  # keeps the cleaning from making such rows anew under other keys
    with append_only_lifted():
        django_clean(case)
    connection.creation.deserialize_db_from_string(connection._test_serialized_contents)  # type: ignore[attr-defined]


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
