"""Tables that are written once: each that a migration declares so is it after all migrations.

On SQLite, Django makes a table that it alters anew, and leaves its triggers behind.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, models
from django.db.migrations import AlterField
from django.db.migrations.loader import MigrationLoader

from ergon_site.access.database.append_only import AppendOnly
from tests.database import another

pytestmark = pytest.mark.django_db(transaction=True)
LOADER = MigrationLoader(None, ignore_no_migrations=True)
STATE = LOADER.project_state()
DECLARED = [
    (app, operation)
    for (app, _), migration in sorted(LOADER.disk_migrations.items())
    for operation in migration.operations
    if isinstance(operation, AppendOnly)
]
Trigger = tuple[str, str]


def declared(app: str, operation: AppendOnly) -> set[Trigger]:
    """The triggers that an operation installs, each with its table."""
    terms = operation.terms(app, connection.vendor, STATE)
    text = "".join(operation.install[connection.vendor]).format(**terms)
    return {(name, terms["table"]) for name in re.findall(r"TRIGGER (?:IF NOT EXISTS )?(\w+) BEFORE", text)}


def installed(database: Any = connection) -> set[Trigger]:
    with database.cursor() as cursor:
        if database.vendor == "sqlite":
            cursor.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'")
        else:
            cursor.execute("SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE tgenabled = 'O'")
        return set(cursor.fetchall())


@pytest.mark.parametrize(("app", "operation"), DECLARED, ids=[f"{app}.{one.model_name}" for app, one in DECLARED])
def test_a_table_that_is_written_once_has_its_triggers_after_all_migrations(app: str, operation: AppendOnly) -> None:
    assert len(declared(app, operation)) >= 1
    assert declared(app, operation) <= installed(), "declare AppendOnly again in the migration that alters this table"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Any]:
    with another(tmp_path) as address, closing(connection.copy()) as database:
        name = address.removeprefix("sqlite:///") if connection.vendor == "sqlite" else address.rpartition("/")[2]
        database.settings_dict["NAME"] = name
        yield database


@pytest.mark.parametrize(
    ("app", "operation"),
    [(app, one) for app, one in DECLARED if app in {"access", "facts"}],
    ids=lambda one: getattr(one, "model_name", one),
)
def test_a_migration_that_alters_such_a_table_can_declare_it_again(app: str, operation: AppendOnly, other: Any) -> None:
    wanted = declared(app, operation)
    after = STATE.clone()
    model = after.models[app, operation.model_name.lower()]
    name = next(name for name, field in model.fields.items() if isinstance(field, models.CharField))
    longer = model.fields[name].clone()
    longer.max_length = 999
    alter = AlterField(operation.model_name, name, longer)
    alter.state_forwards(app, after)
    with other.schema_editor() as editor:
        alter.database_forwards(app, editor, STATE, after)
    assert (wanted <= installed(other)) == (other.vendor != "sqlite")
    with other.schema_editor() as editor:
        operation.database_forwards(app, editor, STATE, after)
    assert wanted <= installed(other)
