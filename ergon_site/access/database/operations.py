"""Migration operations for what one database wants and the other has no words for."""

from collections.abc import Mapping
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db.migrations.operations import AddConstraint, AddIndex
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class Statements(Operation):
    """Statements by database, to install something and to remove it again; nothing that models can see changes."""

    reduces_to_sql = True
    reversible = True
    install: Mapping[str, list[str]]
    remove: Mapping[str, list[str]]

    def state_forwards(self, app_label: str, state: ProjectState) -> None: ...

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(self.install, app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(self.remove, app_label, schema_editor, from_state)

    def terms(self, app_label: str, vendor: str, state: Any) -> dict[str, str]:
        """What stands for the names in braces."""
        return {}

    def _run(self, statements: Mapping[str, list[str]], app_label: str, schema_editor: Any, state: Any) -> None:
        vendor = schema_editor.connection.vendor
        terms = self.terms(app_label, vendor, state)
        for statement in statements.get(vendor, []):
            schema_editor.execute(statement.format(**terms) if terms else statement, params=None)


class OnPostgreSQL(Statements):
    """Statements for PostgreSQL alone."""

    def __init__(self, forwards: list[str], backwards: list[str]) -> None:
        self.install, self.remove = {"postgresql": forwards}, {"postgresql": backwards}

    def describe(self) -> str:
        return "Tune PostgreSQL"


class AddIndexOnline(AddIndexConcurrently):
    """Adds an index, on PostgreSQL while others go on writing; what a broken try has left is replaced."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        is_postgresql = schema_editor.connection.vendor == "postgresql"
        if is_postgresql:
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
        base = AddIndexConcurrently if is_postgresql else AddIndex
        base.database_forwards(self, app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        base = AddIndexConcurrently if schema_editor.connection.vendor == "postgresql" else AddIndex
        base.database_backwards(self, app_label, schema_editor, from_state, to_state)


class AddUniqueOnline(AddConstraint):
    """Adds a unique constraint with a condition, as `AddIndexOnline` adds an index."""

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.constraint.name)}")
        model = to_state.apps.get_model(app_label, self.model_name)
        statement = str(self.constraint.create_sql(model, schema_editor))
        schema_editor.execute(statement.replace("UNIQUE INDEX", "UNIQUE INDEX CONCURRENTLY", 1), params=None)
