"""A migration operation: the database itself refuses to change calls, and to remove them before their time."""

from ergon_site.access.append_only import AppendOnly

POSTGRESQL = """
CREATE OR REPLACE FUNCTION providers_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION providers_refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.created_at >= COALESCE((SELECT max(metrics_before) FROM provider_retention), '-infinity') THEN
    RAISE EXCEPTION '% is append-only: call % is not old enough', TG_TABLE_NAME, OLD.id
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER {table}_append_only BEFORE UPDATE OR TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION providers_refuse_change();
CREATE TRIGGER {table}_in_time BEFORE DELETE ON {table}
  FOR EACH ROW EXECUTE FUNCTION providers_refuse_removal();
"""
SQLITE_UPDATE = """
CREATE TRIGGER {table}_append_only_UPDATE BEFORE UPDATE ON {table}
  BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END
"""
SQLITE_DELETE = """
CREATE TRIGGER {table}_append_only_DELETE BEFORE DELETE ON {table}
  WHEN OLD.created_at >= COALESCE((SELECT max(metrics_before) FROM provider_retention), '')
  BEGIN SELECT RAISE(ABORT, '{table} is append-only: this call is not old enough'); END
"""
INSTALL = {"postgresql": [POSTGRESQL], "sqlite": [SQLITE_UPDATE, SQLITE_DELETE]}
REMOVE = {
    "postgresql": ["DROP TRIGGER {table}_append_only ON {table}; DROP TRIGGER {table}_in_time ON {table}"],
    "sqlite": ["DROP TRIGGER {table}_append_only_UPDATE", "DROP TRIGGER {table}_append_only_DELETE"],
}


class KeptForATime(AppendOnly):
    """Refuse every change of a table, and every removal of rows that `Retention` does not let go."""

    install, remove = INSTALL, REMOVE
