"""The rule of migrations: code that is one release older works on the new schema.

During an upgrade the schema is migrated first, and processes of both releases run on it for a while. So a release only
expands: a new column may be left out by whoever does not know it, and what older code uses is neither dropped nor
renamed nor made narrower. A later release may contract, in a migration that says so by naming the earlier migration of
its app after which nothing uses it any more: `expanded_in = "0008_new_column"`.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.migrations import Migration, operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED

LABELS = ("access", "engines", "facts", "providers")
CONTRACTING = (
    operations.RemoveField,
    operations.RenameField,
    operations.DeleteModel,
    operations.RenameModel,
    operations.AlterModelTable,
)
CONTRACTING_SQL = re.compile(r"DROP\s+(COLUMN|TABLE)|RENAME\s+(COLUMN|TO)|SET\s+NOT\s+NULL", re.IGNORECASE)


def all_faults() -> list[str]:
    """What the migrations of every app do that older code would not survive."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    found = []
    for label in LABELS:
        mine = [migration for (app, _), migration in sorted(loader.disk_migrations.items()) if app == label]
        found += faults(mine, loader.project_state())
    return found


def faults(migrations: Sequence[Migration], final: ProjectState) -> list[str]:
    """The faults of one app's migrations, in their order; defaults that a later one of them adds count."""
    return [
        f"{migration.app_label} {migration.name}: {fault}"
        for place, migration in enumerate(migrations[1:], 1)
        for fault in _faults_of(migration, migrations[:place], final)
    ]


def _faults_of(migration: Migration, earlier: Sequence[Migration], final: ProjectState) -> Iterator[str]:
    new = {one.name_lower for one in migration.operations if isinstance(one, operations.CreateModel)}
    for operation in _flat(migration.operations):
        if isinstance(operation, operations.AddField) and operation.model_name_lower not in new:
            yield from _unknown_column(operation, migration.app_label, final)
    if not _is_contraction(migration, earlier):
        yield from _contractions(migration, earlier)


def _flat(listed: Sequence[Any]) -> Iterator[Any]:
    """Operations of the schema; what only tells Django what it has done by other means is not among them."""
    for operation in listed:
        if isinstance(operation, operations.SeparateDatabaseAndState):
            yield from _flat(operation.database_operations)
        else:
            yield operation


def _unknown_column(added: Any, label: str, final: ProjectState) -> Iterator[str]:
    model = final.models.get((label, added.model_name_lower))
    field = model.fields.get(added.name) if model else None
    if field is None or field.many_to_many or field.null or field.db_default is not NOT_PROVIDED:
        return
    yield f"{added.model_name}.{added.name} is NOT NULL and has no db_default: older code cannot insert a row"


def _is_contraction(migration: Migration, earlier: Sequence[Migration]) -> bool:
    named = getattr(migration, "expanded_in", None)
    return named is not None and named in {one.name for one in earlier}


def _contractions(migration: Migration, earlier: Sequence[Migration]) -> Iterator[str]:
    before = {place: field for one in earlier for place, field in _fields(one)}
    for operation in _flat(migration.operations):
        if isinstance(operation, CONTRACTING):
            yield f"{operation.describe()}: older code still uses it"
        if isinstance(operation, operations.AlterField):
            known = before.get((operation.model_name_lower, operation.name))
            if known is not None and (how := _narrower(known, operation.field)):
                yield f"{operation.model_name}.{operation.name} {how}: older code writes what it wrote before"
    if CONTRACTING_SQL.search(inspect.getsource(inspect.getmodule(type(migration)) or type(migration))):
        yield "its SQL drops, renames or narrows what older code still uses"


def _fields(migration: Migration) -> Iterator[tuple[tuple[str, str], Any]]:
    for operation in migration.operations:
        if isinstance(operation, operations.CreateModel):
            for name, field in operation.fields:
                yield (operation.name_lower, name), field
        elif isinstance(operation, operations.AddField | operations.AlterField):
            yield (operation.model_name_lower, operation.name), operation.field


def _narrower(before: Any, after: Any) -> str:
    if before.null and not after.null:
        return "becomes NOT NULL"
    if before.get_internal_type() != after.get_internal_type():
        return "becomes another type"
    longest = getattr(before, "max_length", None), getattr(after, "max_length", None)
    return "becomes shorter" if longest[1] and (longest[0] is None or longest[1] < longest[0]) else ""
