"""The test database between tests: emptied, append-only tables too, and refilled with what migrations put in."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit, urlunsplit

from django.apps import apps
from django.conf import settings
from django.core import serializers
from django.db import connection, connections, transaction
from django.db.utils import DEFAULT_DB_ALIAS
from django.test import TransactionTestCase

from ergon_site.access.database import calls
from tests.processes import eventually

P = ParamSpec("P")
T = TypeVar("T")

_migrated: dict[str, list[dict[str, Any]]] = {}
_rows: dict[str, list[tuple[Any, ...]]] = {}  # of each of these tables, as the migrations or the last refill left them
_tables: list[str] = []  # all of them, which no test makes or drops


def choose_file(folder: Path) -> None:
    """SQLite in a file, as in production: other processes must see the test's database."""
    if connection.vendor == "sqlite":
        connection.settings_dict["TEST"]["NAME"] = str(folder / "test.sqlite3")


@contextmanager
def idle_limits(word: str) -> Iterator[list[str]]:
    """For how long PostgreSQL lets this process stand still with its transaction, at each statement with this word."""
    limits: list[str] = []

    def look(execute: Any, statement: str, *given: Any) -> Any:
        if word in statement:
            limits.append(connection.connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0])
        return execute(statement, *given)

    with connection.execute_wrapper(look):
        yield limits


def take_over(*_: object, **__: object) -> str:
    """Use what was copied from the template, where Django would make a database and migrate it."""
    name: str = connection.creation._get_test_db_name()  # type: ignore[attr-defined]
    connection.close()
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name
    connection.ensure_connection()
    return name


def remember() -> None:
    """Keep what the migrations put in, by table; and let Django find out now what else it would ask in some test."""
    assert connection.features.supports_json_field
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    _tables[:] = [name for name in names if name != "django_migrations"]
    for row in json.loads(connection.creation.serialize_db_to_string()):
        table = apps.get_model(row["model"])._meta.db_table
        _migrated.setdefault(table, []).append(row)
    _remember_rows(_migrated)


def keep_copy() -> None:
    """Keep the database as the migrations made it, for whoever needs a second one. SQLite copies a file in no time."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_database WHERE datname = %s", [_copy()])
            if not cursor.rowcount:
                cursor.execute(f"CREATE DATABASE {_copy()} TEMPLATE {connection.settings_dict['NAME']}")


def drop_copy() -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {_copy()}")


@contextmanager
def another(folder: Path) -> Iterator[str]:
    """The address of another database, as the migrations make it."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM INTO %s", [str(folder / "another.sqlite3")])
        yield f"sqlite:///{folder}/another.sqlite3"
        return
    with _made(_copy()) as address:
        yield address


@contextmanager
def empty(folder: Path) -> Iterator[str]:
    """The address of another database, without a table."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{folder}/empty.sqlite3"
        return
    with _made("template1") as address:
        yield address


@contextmanager
def _made(template: str) -> Iterator[str]:
    name = f"another_{os.getpid()}_{time.monotonic_ns()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _copy() -> str:
    return f"{connection.settings_dict['NAME']}_as_migrated"


def clean(_case: TransactionTestCase) -> None:
    """Empty every table that a test has filled, and put back the rows of the data migrations.

    Only these: to empty and refill all of them takes longer than most tests.
    """
    from providers.calls.rating import board  # not before Django is set up

    board.forget()
    touched = _touched()
    if connection.vendor == "postgresql" and not _are_small(touched):
        with append_only_lifted(), connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(touched)} CASCADE")
            _refill([*touched, *(table for table in _rows if table not in touched and not _is_as_migrated(table))])
    elif touched:
        with _guards_lifted(touched), connection.cursor() as cursor:
            for table in (touched := _touched()):
                cursor.execute(f"DELETE FROM {table}")
            _refill(touched)


def _touched() -> list[str]:
    left_alone = ROLES if _are_roles_as_migrated() else ()
    return [table for table in _filled() if table not in left_alone and not _is_as_migrated(table)]


def _is_as_migrated(table: str) -> bool:
    return table in _rows and _rows[table] == _all_rows(table)


def _remember_rows(tables: Iterable[str]) -> None:
    _rows.update({table: _all_rows(table) for table in tables if table in _migrated and table not in ROLES})


def _all_rows(table: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        return list(cursor.fetchall())


def _are_small(tables: list[str]) -> bool:
    """Whether to delete their rows takes a fraction of the time; who may not lift guards at once truncates."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('is_superuser')::bool AND coalesce(max(pg_relation_size(t::regclass)), 0) <= %s"
            " FROM unnest(%s::text[]) t",
            [SMALL, tables],
        )
        return bool(cursor.fetchone()[0])


@contextmanager
def _guards_lifted(tables: list[str]) -> Iterator[None]:
    """In one transaction without foreign keys and triggers, after those who still write have ended theirs."""
    if connection.vendor == "sqlite":
        with connection.constraint_checks_disabled(), transaction.atomic(), append_only_lifted(_touched()):
            yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(f"LOCK TABLE {', '.join(tables)} IN EXCLUSIVE MODE")
        yield


SMALL = 64 * 1024
ROLES = ("django_content_type", "auth_permission", "auth_group", "auth_group_permissions")


def _filled() -> list[str]:
    look = " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in _tables)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # to plan it takes ten times as long as to look
            cursor.execute("SELECT FROM pg_prepared_statements WHERE name = 'filled'")
            if not cursor.rowcount:
                cursor.execute(f"PREPARE filled AS {look}")
            look = "EXECUTE filled"
        cursor.execute(look)
        return [name for (name,) in cursor.fetchall()]


def _are_roles_as_migrated() -> bool:
    given = sum(len(row["fields"]["permissions"]) for row in _migrated["auth_group"])
    expected = [*(len(_migrated[table]) for table in ROLES[:3]), given]
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(f"SELECT {place}, count(*) FROM {table}" for place, table in enumerate(ROLES))
        )
        return [count for _, count in sorted(cursor.fetchall())] == expected


def _refill(tables: list[str]) -> None:
    rows = [row for table in tables for row in _migrated.get(table, [])]
    with transaction.atomic():
        for restored in serializers.deserialize("json", json.dumps(rows)):
            restored.save()
    _remember_rows(tables)


@contextmanager
def append_only_lifted(tables: Sequence[str] | None = None) -> Iterator[None]:
    """Take the triggers of these tables away for a moment, or of all; nothing outside the tests can."""
    lift, restore = _triggers(tables)
    with connection.cursor() as cursor:
        for statement in lift:
            cursor.execute(statement)
        yield
        for statement in restore:
            cursor.execute(statement)


def _triggers(tables: Sequence[str] | None) -> tuple[list[str], list[str]]:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%append_only%'"
            )
            rows = [row for row in cursor.fetchall() if tables is None or row[0] in tables]
            return [f"DROP TRIGGER {name}" for _, name, _ in rows], [sql for *_, sql in rows]
        cursor.execute("SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE tgname LIKE '%append_only'")
        rows = [row for row in cursor.fetchall() if tables is None or row[0] in tables]
        return (
            [f"ALTER TABLE {table} DISABLE TRIGGER {name}" for table, name in rows],
            [f"ALTER TABLE {table} ENABLE TRIGGER {name}" for table, name in rows],
        )


# In the words of SQLite.
NO_SPACE = "database or disk is full"


@contextmanager
def refusing(table: str, action: str = "INSERT") -> Iterator[None]:
    """The database refuses one kind of change to a table, with the error that a full disk would cause."""
    name = f"refusing_{table}"
    if connection.vendor == "sqlite":
        # A trigger of SQLite can raise no such error by itself; a table that has used its last number does.
        make = [
            f"CREATE TABLE {name}_used_up (id INTEGER PRIMARY KEY AUTOINCREMENT)",
            f"INSERT INTO {name}_used_up VALUES ({2**63 - 1})",
            f"CREATE TRIGGER {name} BEFORE {action} ON {table} BEGIN INSERT INTO {name}_used_up VALUES (NULL); END",
        ]
        drop = [f"DROP TRIGGER {name}", f"DROP TABLE {name}_used_up"]
    else:
        body = f"BEGIN RAISE EXCEPTION '{NO_SPACE}' USING ERRCODE = 'disk_full'; END"
        make = [
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
            f"CREATE TRIGGER {name} BEFORE {action} ON {table} EXECUTE FUNCTION {name}()",
        ]
        drop = [f"DROP FUNCTION {name} CASCADE"]
    with connection.cursor() as cursor:
        for statement in make:
            cursor.execute(statement)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for statement in drop:
                cursor.execute(statement)


def answering_late(call: Callable[P, T], time: int = 1) -> Callable[P, T]:
    """The call, of which one answer, by default the first, comes when the time limit around it is over.

    As of a server that is slow or waits for its synchronous standby, or in a process that was frozen.
    """
    made: list[None] = []

    def answer(*given: P.args, **options: P.kwargs) -> T:
        answered = call(*given, **options)
        made.append(None)
        if len(made) == time:
            eventually(_is_time_up, "the time limit is over")
        return answered

    return answer


def _is_time_up() -> bool:
    mine = connections[DEFAULT_DB_ALIAS]
    return any(call.is_expired for call in list(calls._watcher._calls) if call.wrapper is mine)
