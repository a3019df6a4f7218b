"""Counters without a check of their own: PostgreSQL reads each check anew at every settlement, and these tell nothing.

Only settlements count there, from zero upwards; numbers of attempts have a stricter check beside the ones that go.
"""

from django.db import migrations

from ergon_site.access.database.operations import OnPostgreSQL

COUNTED = {
    "provider_execution_metrics": ("attempt_number", "max_attempts", "http_status", "policy_version"),
    "provider_minutes": (
        *("attempts", "successes", "executions", "successful_executions"),
        *("refusals", "cache_hits", "stale_answers", "fallbacks"),
    ),
    "provider_health_states": ("consecutive_failures", "attempts_1h"),
}
CHECKS = [(table, column) for table, columns in COUNTED.items() for column in columns]


class Migration(migrations.Migration):
    # One lock at a time: settlements lock several of these tables.
    atomic = False

    dependencies = [("providers", "0010_metric_transaction")]

    operations = [
        OnPostgreSQL(
            forwards=[
                f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_{column}_check" for table, column in CHECKS
            ],
            backwards=[
                f"ALTER TABLE {table} ADD CONSTRAINT {table}_{column}_check CHECK ({column} >= 0)"
                for table, column in CHECKS
            ],
        ),
    ]
