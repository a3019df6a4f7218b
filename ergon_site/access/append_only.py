"""Tables that are written once: a migration operation that makes the database itself refuse anything else."""

from typing import Any

from ergon_site.access.database.operations import Statements

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


class AppendOnly(Statements):
    """Refuse UPDATE, DELETE and TRUNCATE on a model's table from here on.

    Those who let something go after all have statements of their own.
    """

    install = INSTALL
    remove = REMOVE

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def describe(self) -> str:
        return f"Make {self.model_name} append-only"

    def written(self, statement: str, app_label: str, state: Any) -> str:
        model = state.apps.get_model(app_label, self.model_name)
        return statement.format(table=model._meta.db_table)  # noqa: SLF001 (Django's own way)
