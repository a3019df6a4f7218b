"""A migration operation: the database itself refuses to change facts, and to remove them but below the truncation."""

from ergon_site.access.append_only import AppendOnly

POSTGRESQL = """
CREATE OR REPLACE FUNCTION facts_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE FUNCTION facts_refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD."offset" >= (SELECT first_offset FROM facts_boundary WHERE id = OLD.boundary_id) THEN
    RAISE EXCEPTION '% is append-only: offset % has not been truncated', TG_TABLE_NAME, OLD."offset"
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER {table}_append_only BEFORE UPDATE OR TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION facts_refuse_change();
CREATE TRIGGER {table}_in_order BEFORE DELETE ON {table}
  FOR EACH ROW EXECUTE FUNCTION facts_refuse_removal();
"""
SQLITE_UPDATE = """
CREATE TRIGGER {table}_append_only_UPDATE BEFORE UPDATE ON {table}
  BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END
"""
SQLITE_DELETE = """
CREATE TRIGGER {table}_append_only_DELETE BEFORE DELETE ON {table}
  WHEN OLD."offset" >= (SELECT first_offset FROM facts_boundary WHERE id = OLD.boundary_id)
  BEGIN SELECT RAISE(ABORT, '{table} is append-only: this offset has not been truncated'); END
"""
INSTALL = {"postgresql": [POSTGRESQL], "sqlite": [SQLITE_UPDATE, SQLITE_DELETE]}
REMOVE = {
    "postgresql": ["DROP TRIGGER {table}_append_only ON {table}; DROP TRIGGER {table}_in_order ON {table}"],
    "sqlite": ["DROP TRIGGER {table}_append_only_UPDATE", "DROP TRIGGER {table}_append_only_DELETE"],
}


class WrittenOnce(AppendOnly):
    """Refuse every change of a buffer's table, and every removal of what has not been truncated."""

    install, remove = INSTALL, REMOVE
