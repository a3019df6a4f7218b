"""Facts know their boundary without a foreign key: on PostgreSQL its check would cost as much as the insert itself.

An append takes the boundary's id from the boundary's own row, which it holds locked; so all there is to guard against
is that a boundary is removed and its facts stay, and a trigger does that. On SQLite the keys stay as they are.
"""

from django.db import migrations, models
from django.db.models.deletion import PROTECT

GUARD = """
DO $$
DECLARE found record;
BEGIN
  FOR found IN SELECT conrelid::regclass AS name, conname FROM pg_constraint
    WHERE contype = 'f' AND confrelid = 'facts_boundary'::regclass
      AND conrelid IN ('facts_fact'::regclass, 'facts_forwardedfact'::regclass)
  LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', found.name, found.conname);
  END LOOP;
END $$;
CREATE FUNCTION facts_refuse_boundary_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM facts_fact WHERE boundary_id = OLD.id)
      OR EXISTS (SELECT FROM facts_forwardedfact WHERE boundary_id = OLD.id) THEN
    RAISE EXCEPTION 'boundary % has facts', OLD.id USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER facts_boundary_has_facts BEFORE DELETE ON facts_boundary
  FOR EACH ROW EXECUTE FUNCTION facts_refuse_boundary_removal();
"""
UNGUARD = """
DROP TRIGGER facts_boundary_has_facts ON facts_boundary;
DROP FUNCTION facts_refuse_boundary_removal();
ALTER TABLE facts_fact ADD FOREIGN KEY (boundary_id) REFERENCES facts_boundary DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE facts_forwardedfact ADD FOREIGN KEY (boundary_id) REFERENCES facts_boundary DEFERRABLE INITIALLY DEFERRED;
"""
KEY = models.ForeignKey(
    db_constraint=False, db_index=False, on_delete=PROTECT, related_name="+", to="facts.boundary"
)


def guard(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(GUARD, params=None)


def unguard(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(UNGUARD, params=None)


class Migration(migrations.Migration):
    dependencies = [("facts", "0004_causation_indexes")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(guard, unguard)],
            state_operations=[
                migrations.AlterField("fact", "boundary", KEY),
                migrations.AlterField("forwardedfact", "boundary", KEY.clone()),
            ],
        )
    ]
