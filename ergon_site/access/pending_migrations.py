"""Migrations that are not applied yet."""

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from ergon_site.access.cli.program import typed
from ergon_site.access.database.description import describe


def plan() -> list[str]:
    """Those that the database does not have yet."""
    executor = MigrationExecutor(connection)
    return [str(migration) for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]


def migrations() -> list[str]:
    """The same; none where nobody can tell."""
    try:
        return plan()
    except DatabaseError:
        return []


def hint() -> str:
    """What to do about a database that is not up to date; empty if it is, or nobody can tell."""
    text = f"the database is not up to date: run {typed('migrate')} (it is {describe(connection)})"
    return text if migrations() else ""
