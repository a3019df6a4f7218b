"""Migration operations for what one database wants and the other has no words for."""

from typing import Any

from django.db.migrations.operations import AddIndex
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class OnPostgreSQL(Operation):
    """Statements for PostgreSQL alone; nothing that models can see changes."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, forwards: list[str], backwards: list[str]) -> None:
        self.forwards, self.backwards = forwards, backwards

    def state_forwards(self, app_label: str, state: ProjectState) -> None: ...

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(self.forwards, schema_editor)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(self.backwards, schema_editor)

    def describe(self) -> str:
        return "Tune PostgreSQL"

    def _run(self, statements: list[str], schema_editor: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            for statement in statements:
                schema_editor.execute(statement, params=None)


class AddIndexOnline(AddIndex):
    """Adds an index, on PostgreSQL while others go on writing; what a broken try has left is replaced."""

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
            schema_editor.add_index(model, self.index, concurrently=True)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)
            return
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.remove_index(model, self.index, concurrently=True)
