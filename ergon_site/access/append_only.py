"""Tables that are written once: a migration operation that makes the database itself refuse anything else."""

from typing import Any, ClassVar

from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

POSTGRESQL_INSTALL = """
CREATE OR REPLACE FUNCTION ergon_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION ergon_refuse_change();
"""
SQLITE_INSTALL = """
CREATE TRIGGER {{table}}_append_only_{verb} BEFORE {verb} ON {{table}}
  BEGIN SELECT RAISE(ABORT, '{{table}} is append-only'); END
"""
INSTALL = {
    "postgresql": [POSTGRESQL_INSTALL],
    "sqlite": [SQLITE_INSTALL.format(verb="UPDATE"), SQLITE_INSTALL.format(verb="DELETE")],
}
REMOVE = {
    "postgresql": ["DROP TRIGGER {table}_append_only ON {table}"],
    "sqlite": ["DROP TRIGGER {table}_append_only_UPDATE", "DROP TRIGGER {table}_append_only_DELETE"],
}


class AppendOnly(Operation):
    """Refuse UPDATE, DELETE and TRUNCATE on a model's table from here on."""

    reduces_to_sql = True
    reversible = True
    # By database; those who let something go after all have statements of their own.
    install: ClassVar = INSTALL
    remove: ClassVar = REMOVE

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Nothing that models can see changes."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(self.install, app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._run(self.remove, app_label, schema_editor, from_state)

    def describe(self) -> str:
        return f"Make {self.model_name} append-only"

    def _run(self, statements: dict[str, list[str]], app_label: str, schema_editor: Any, state: Any) -> None:
        table = state.apps.get_model(app_label, self.model_name)._meta.db_table  # noqa: SLF001 (Django's own way)
        for statement in statements[schema_editor.connection.vendor]:
            schema_editor.execute(statement.format(table=table), params=None)
