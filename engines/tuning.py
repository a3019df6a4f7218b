"""A migration operation for what one database wants and the other has no words for."""

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState


class OnPostgreSQL(Operation):
    """Statements for PostgreSQL alone; nothing that models can see changes."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, forwards: list[str], backwards: list[str]) -> None:
        self.forwards, self.backwards = forwards, backwards

    def state_forwards(self, app_label: str, state: ProjectState) -> None: ...

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        self._run(self.forwards, schema_editor)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        self._run(self.backwards, schema_editor)

    def describe(self) -> str:
        return "Tune PostgreSQL"

    def _run(self, statements: list[str], schema_editor: BaseDatabaseSchemaEditor) -> None:
        if schema_editor.connection.vendor == "postgresql":
            for statement in statements:
                schema_editor.execute(statement, params=None)
