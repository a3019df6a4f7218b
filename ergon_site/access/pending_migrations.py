"""Migrations that are not applied yet."""

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor


def migrations() -> list[str]:
    """Those that the database does not have yet; none where nobody can tell."""
    try:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return []
    return [str(migration) for migration, _ in plan]
