"""Tables that are written once: migration operations that make the database itself refuse anything else."""

from typing import Any

from ergon_site.access.database.operations import Statements

POSTGRESQL_REFUSAL = """
CREATE OR REPLACE FUNCTION {prefix}_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
"""
POSTGRESQL = """CREATE OR REPLACE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION {prefix}_refuse_change();
"""
POSTGRESQL_REMOVABLE = """CREATE OR REPLACE FUNCTION {prefix}_refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF {condition} THEN
    RAISE EXCEPTION '% is append-only: {noun} % {reason}', TG_TABLE_NAME, OLD.{key}
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER {table}_append_only BEFORE UPDATE OR TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION {prefix}_refuse_change();
CREATE OR REPLACE TRIGGER {table}_{trigger} BEFORE DELETE ON {table}
  FOR EACH ROW EXECUTE FUNCTION {prefix}_refuse_removal();
"""
SQLITE_UPDATE = """
CREATE TRIGGER IF NOT EXISTS {table}_append_only_UPDATE BEFORE UPDATE ON {table}
  BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END
"""
SQLITE_REMOVABLE = """
CREATE TRIGGER IF NOT EXISTS {table}_append_only_DELETE BEFORE DELETE ON {table}
  WHEN {condition}
  BEGIN SELECT RAISE(ABORT, '{table} is append-only: this {noun} {reason}'); END
"""


class AppendOnly(Statements):
    """Refuse UPDATE, DELETE and TRUNCATE on a model's table from here on.

    A migration that alters such a table says so again at its end: SQLite has no other way to alter one than to make it
    anew, which Django does without triggers.
    """

    install = {
        "postgresql": [POSTGRESQL_REFUSAL + POSTGRESQL],
        "sqlite": [SQLITE_UPDATE, SQLITE_UPDATE.replace("UPDATE", "DELETE")],
    }
    remove = {
        "postgresql": ["DROP TRIGGER {table}_append_only ON {table}"],
        "sqlite": ["DROP TRIGGER {table}_append_only_UPDATE", "DROP TRIGGER {table}_append_only_DELETE"],
    }

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def describe(self) -> str:
        return f"Make {self.model_name} append-only"

    def terms(self, app_label: str, vendor: str, state: Any) -> dict[str, str]:
        model = state.apps.get_model(app_label, self.model_name)
        return {"table": model._meta.db_table, "prefix": "ergon"}  # noqa: SLF001 (Django's own way)


class AppendOnlyWhile(AppendOnly):
    """Refuse UPDATE and TRUNCATE on a model's table, and DELETE of rows for which a condition holds.

    The condition is SQL about OLD, by database; `trigger` names the trigger. The refusal reads like "offset 7 has not
    been truncated", from a `noun`, the column `key` and a `reason`.
    """

    install = {
        "postgresql": [POSTGRESQL_REFUSAL + POSTGRESQL_REMOVABLE],
        "sqlite": [SQLITE_UPDATE, SQLITE_REMOVABLE],
    }
    remove = {
        **AppendOnly.remove,
        "postgresql": ["DROP TRIGGER {table}_append_only ON {table}; DROP TRIGGER {table}_{trigger} ON {table}"],
    }

    def __init__(self, model_name: str, *, condition: dict[str, str], **words: str) -> None:
        super().__init__(model_name)
        self.condition, self.words = condition, words

    def terms(self, app_label: str, vendor: str, state: Any) -> dict[str, str]:
        known = super().terms(app_label, vendor, state)
        return {**known, "prefix": app_label, "condition": self.condition[vendor], **self.words}
