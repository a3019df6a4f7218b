"""Transactions that have been open for long: as long as one is, PostgreSQL keeps every row version that it might read.

Claims pass by the dead entries of all that was claimed and settled meanwhile, so they get slower and slower.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection

from ergon_site.access.core.durations import span

LONG, VERY_LONG = 300.0, 3600.0
# Of what has no time, only the number of transactions since then is known.
MANY = 1_000_000

# Never the text of a query: it may hold a payload. What a session must not be told about others is NULL.
HOLDERS = """
SELECT * FROM (
  SELECT CASE backend_type WHEN 'walsender' THEN 'replica' ELSE 'session' END AS kind, pid::text AS name,
    usename AS owner, NULLIF(application_name, '') AS application, host(client_addr) AS address, state,
    EXTRACT(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
    age(COALESCE(backend_xmin, backend_xid)) AS passed
    FROM pg_stat_activity
   WHERE COALESCE(backend_xmin, backend_xid) IS NOT NULL AND pid <> pg_backend_pid()
     AND (datname = current_database() AND COALESCE(backend_type, 'client backend') = 'client backend'
          AND usename IS NOT NULL OR backend_type = 'walsender')
  UNION ALL
  SELECT 'prepared transaction', gid, owner, NULL, NULL, NULL,
    EXTRACT(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
    FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT 'replication slot', slot_name, NULL, NULL, NULL, CASE WHEN active THEN 'active' ELSE 'inactive' END,
    NULL, age(xmin)
    FROM pg_replication_slots WHERE xmin IS NOT NULL) h
WHERE seconds > %s OR seconds IS NULL AND passed > %s ORDER BY seconds DESC NULLS LAST, passed DESC LIMIT %s
"""
SEES_ALL = "SELECT pg_has_role('pg_read_all_stats', 'usage')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A session, prepared transaction, replica or replication slot that holds an old snapshot."""

    kind: str
    name: str
    owner: str | None
    application: str | None
    address: str | None
    state: str | None
    seconds: float | None
    passed: int

    @property
    def title(self) -> str:
        whose = f" of {self.owner}" if self.owner else ""
        return f"{self.kind.capitalize()} {self.name}{whose} holds an old snapshot"

    @property
    def detail(self) -> str:
        """A description of the session."""
        known = [
            self.application and f"application {self.application}",
            self.address and f"from {self.address}",
            self.state,
            f"open for {span(self.seconds)}" if self.seconds is not None else f"{self.passed:,} transactions old",
        ]
        return ", ".join(part for part in known if part)

    @property
    def remedy(self) -> str:
        quoted = self.name.replace("'", "''")
        return {
            "session": f"end its transaction, or the session: SELECT pg_terminate_backend({quoted})",
            "replica": "end the long query on the replica, or set hot_standby_feedback = off there",
            "prepared transaction": f"COMMIT PREPARED '{quoted}' or ROLLBACK PREPARED '{quoted}'",
            "replication slot": f"let its replica catch up, or SELECT pg_drop_replication_slot('{quoted}')",
        }[self.kind]

    @property
    def is_very_old(self) -> bool:
        return self.seconds is not None and self.seconds > VERY_LONG


def holders(*, most: int = 20) -> Iterator[Holder]:
    """Holders of old snapshots, the oldest first; none on SQLite."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(HOLDERS, [LONG, MANY, most])
        names = [column.name for column in cursor.description or ()]
        for row in cursor.fetchall():
            yield Holder(**dict(zip(names, row, strict=True)))


def as_json(*, most: int) -> tuple[str, list[Any]]:
    """The statement and its parameters for the same as one JSON text."""
    return f"SELECT COALESCE(json_agg(h), '[]')::text FROM ({HOLDERS}) h", [LONG, MANY, most]  # noqa: S608 (our own)


def can_see_all() -> bool:
    """Whether this database user may see the transactions and addresses of other sessions."""
    with connection.cursor() as cursor:
        cursor.execute(SEES_ALL)
        return bool(cursor.fetchone()[0])
