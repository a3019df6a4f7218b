"""Checks of what everything stands on: database, migrations, clock, broker, disk."""

import shutil
from collections.abc import Iterator

from django.db import DatabaseError, connection
from django.utils import timezone
from kombu.connection import Connection

from engines.conf import settings
from engines.core.errors import headline
from engines.reads import old_snapshots
from engines.reads.doctor.finding import Finding, graded, ok, problem, warning
from ergon_site.access.cli.program import typed
from ergon_site.access.core.durations import span
from ergon_site.access.database import pooler
from ergon_site.access.database.clock import database_time
from ergon_site.access.pending_migrations import migrations as waiting_migrations

OLDEST = {"postgresql": (15,), "sqlite": (3, 35)}
SKEW_WARNING, SKEW_PROBLEM = 1.0, 10.0
BROKER_TIMEOUT = 3
MIB = 1024 * 1024
LITTLE_SPACE, NO_SPACE = 1024 * MIB, 100 * MIB
MANY_ROWS = 10_000
HOT = ("engines_transactionrecord", "engines_attempt")


def database() -> Iterator[Finding]:
    try:
        connection.ensure_connection()
        version = connection.get_database_version()
    except DatabaseError as error:
        asking = typed("check --database default")
        hint = f"start it, or correct DATABASE_URL; {asking} shows what Django says"
        yield problem("database", f"does not answer: {headline(error)}", hint)
        return
    name = f"{connection.display_name} {'.'.join(map(str, version))}"
    oldest = OLDEST[connection.vendor]
    if tuple(version) < oldest:
        needed = ".".join(map(str, oldest))
        yield problem("database", f"is {name}, which is too old", f"upgrade it to {needed} or newer")
    else:
        yield ok("database", f"{name} answers")


def connection_pooler() -> Iterator[Finding]:
    """Whether a pooler is declared in the address, and as what it is."""
    if pooler.is_undeclared(connection):
        hint = "add ?pooler=transaction or ?pooler=session to DATABASE_URL; see docs/how-to/pool-connections.md"
        yield warning("pooler", "the connection is pooled, and DATABASE_URL does not declare it", hint)
    elif pooler.is_shared(connection):
        yield ok("pooler", "in transaction mode: new work is found by polling")
    elif pooler.is_declared_wrongly(connection):
        hint = "write ?pooler=transaction in DATABASE_URL, or set pool_mode = session"
        yield problem("pooler", "declared as pooler=session, but it shares connections among transactions", hint)


def migrations() -> Iterator[Finding]:
    waiting = waiting_migrations()
    if waiting:
        yield problem("migrations", f"{len(waiting)} not applied, {waiting[0]} first", f"run {typed('migrate')}")
    else:
        yield ok("migrations", "all applied")


def clock() -> Iterator[Finding]:
    before = timezone.now()
    there = database_time()
    after = timezone.now()
    skew = abs((there - (before + (after - before) / 2)).total_seconds())
    text = f"this host and the database {f'differ by {skew:.1f} s' if skew > SKEW_WARNING else 'agree'}"
    hint = "synchronise both hosts with NTP: leases and schedules go by the database's clock, logs by this one"
    yield graded("clock", text, hint, is_problem=skew > SKEW_PROBLEM, is_warning=skew > SKEW_WARNING)


def statistics() -> Iterator[Finding]:
    """Whether the database looks after its own statistics and dead rows."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            (mode,) = cursor.fetchone()
        if mode == "wal":
            yield ok("statistics", "the database keeps a write-ahead log")
        else:
            hint = "run PRAGMA journal_mode=wal once, with the file on a disk of this host"
            yield warning("statistics", f"the journal's mode is {mode}, not wal", hint)
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('autovacuum'), current_setting('track_counts')")
        if "off" in cursor.fetchone():
            hint = "set autovacuum = on and track_counts = on in postgresql.conf: without them a queue slows down"
            yield problem("statistics", "the database's autovacuum is off", hint)
            return
        cursor.execute(
            "SELECT relname FROM pg_stat_user_tables WHERE relname = ANY(%s) AND n_live_tup > %s"
            " AND last_analyze IS NULL AND last_autoanalyze IS NULL ORDER BY relname",
            [list(HOT), MANY_ROWS],
        )
        unknown = [name for (name,) in cursor.fetchall()]
    if unknown:
        yield warning("statistics", f"{', '.join(unknown)}: no statistics yet", f"run ANALYZE {', '.join(unknown)}")
    else:
        yield ok("statistics", "autovacuum is on, statistics are collected")


def snapshots() -> Iterator[Finding]:
    """Old snapshots, which make claims slower and slower."""
    if connection.vendor != "postgresql":
        return
    found = list(old_snapshots.holders())
    for holder in found:
        say = problem if holder.is_very_old else warning
        yield say("snapshots", f"{holder.title}: {holder.detail}; claims get slower meanwhile", holder.remedy)
    if not found:
        yield ok("snapshots", f"no transaction has been open for {span(old_snapshots.LONG)}")
    if not old_snapshots.can_see_all():
        text = "this role cannot see the age and address of other users' sessions"
        yield warning("snapshots", text, f"GRANT pg_read_all_stats TO {connection.settings_dict['USER']}")


def broker() -> Iterator[Finding]:
    url = settings().broker_url
    if url is None:
        yield ok("broker", "not configured: provider tasks run in the calling process")
        return
    # RabbitMQ's client knows connect_timeout alone, and refuses what it does not know.
    names = ("socket_connect_timeout", "socket_timeout") if url.startswith("redis") else ()
    link = Connection(url, connect_timeout=BROKER_TIMEOUT, transport_options=dict.fromkeys(names, BROKER_TIMEOUT))
    try:
        with link:
            link.connect()
            link.default_channel.close()
    except Exception as error:  # noqa: BLE001 (each transport has errors of its own)
        text = f"does not answer: {type(error).__name__}: {headline(error)}"
        yield problem("broker", text, "start it, or correct CELERY_BROKER_URL")
        return
    yield ok("broker", f"{link.as_uri()} answers")


def disk() -> Iterator[Finding]:
    folder = settings().data_folder
    # It is made when the first file comes.
    there = next(one for one in (folder, *folder.parents) if one.exists())
    free = shutil.disk_usage(there).free
    text, hint = f"{folder} has {free // MIB:,} MiB left", "make room, or move ERGON_DATA_DIR"
    yield graded("disk", text, hint, is_problem=free < NO_SPACE, is_warning=free < LITTLE_SPACE)
