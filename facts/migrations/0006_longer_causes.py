"""A cause is a message id, and may be as long as one. PostgreSQL widens a column without writing it anew.

SQLite knows no widths, and Django would make the tables anew there, without their triggers.
"""

from django.db import migrations, models

WIDEN = """
ALTER TABLE facts_fact ALTER COLUMN causation_id TYPE varchar(1000);
ALTER TABLE facts_forwardedfact ALTER COLUMN causation_id TYPE varchar(1000);
"""
CAUSE = models.CharField(max_length=1000, null=True)


def widen(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(WIDEN, params=None)


class Migration(migrations.Migration):
    dependencies = [("facts", "0005_facts_without_foreign_key")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(widen, migrations.RunPython.noop)],
            state_operations=[
                migrations.AlterField("fact", "causation_id", CAUSE),
                migrations.AlterField("forwardedfact", "causation_id", CAUSE.clone()),
            ],
        )
    ]
