from django.db import migrations

from ergon_site.access.database.operations import OnPostgreSQL
from ergon_site.access.database.append_only import AppendOnly

HOT = ("engines_transactionrecord", "engines_attempt")
# By default a table is vacuumed when a fifth of it is dead: far too late for a queue with a long history.
EAGER = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.02"


class Migration(migrations.Migration):
    dependencies = [("engines", "0001_initial"), ("access", "0003_roles")]

    operations = [
        AppendOnly("PolicyVersion"),
        OnPostgreSQL(
            forwards=[f"ALTER TABLE {table} SET ({EAGER})" for table in HOT],
            backwards=[
                f"ALTER TABLE {table} RESET ({', '.join(part.split(' = ')[0] for part in EAGER.split(', '))})"
                for table in HOT
            ],
        ),
        # Rows lie in the order of their making: a block range index costs nothing and finds an age at once.
        OnPostgreSQL(
            forwards=["CREATE INDEX t_made ON engines_transactionrecord USING brin (created_at) WITH (pages_per_range = 32)"],
            backwards=["DROP INDEX t_made"],
        ),
    ]
