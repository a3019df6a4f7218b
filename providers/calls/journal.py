"""VERBS: spool, replay. Outcomes that the database could not take are kept on this host until it can.

The file is in the data folder, shared by the processes of a host, and its owner alone can read it: it holds answers.
SQLite writes it, so that an outcome is on the disk, whole, before anybody goes on.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import structlog

from engines.core import failures
from ergon_site.access.database.calls import time_limit
from providers import telemetry
from providers.calls import settling
from providers.conf import settings
from providers.core import journal_entry
from providers.core.exchange import CallRequest
from providers.core.steps import Settle
from providers.database import sql

# At most so much, in pages of 4 KiB; beyond that an outcome is only logged.
MOST_PAGES = 64 * 1024 * 1024 // 4096
WAIT = LIMIT = 5.0  # seconds, for the file and for the database
BATCH = 100
OWNER_ONLY = 0o600
TABLE = """
CREATE TABLE IF NOT EXISTS outcomes (
  id INTEGER PRIMARY KEY, tenant TEXT, provider TEXT, capability TEXT, key TEXT, entry TEXT, failures INTEGER DEFAULT 0)
"""
SAME_REQUEST = "FROM outcomes WHERE tenant = ? AND provider = ? AND capability = ? AND key = ?"
# Seconds: a file that was written to just now may be written to again without showing another time.
STILL = 1.0

log = structlog.get_logger("ergon.providers")


class Known:
    """Whether there may be something in the journal, for all this process knows."""

    has_outcomes = True
    empty_as: tuple[int, int] | None = None  # time and size of the file when nothing was in it


known = Known()


def spool(request: CallRequest, settlement: Settle) -> bool:
    """Keep how an attempt ended; whether that was possible."""
    try:
        with _opened() as file:
            row = (*request.who, request.key, journal_entry.dumped(request, settlement))
            file.execute("INSERT INTO outcomes (tenant, provider, capability, key, entry) VALUES (?, ?, ?, ?, ?)", row)
    except (sqlite3.Error, OSError) as error:
        telemetry.store_failures.add(1, {telemetry.VERB: "journal"})
        about = {"outcome": settlement.outcome.value, "call_id": request.call_id, **request.who._asdict()}
        log.error("provider outcome lost", **about, traceback=failures.traceback_of(error))  # noqa: TRY400 (no secrets)
        return False
    known.has_outcomes = True
    log.warning("provider outcome kept in the journal", call_id=request.call_id, **request.who._asdict())
    return True


def answer_to(request: CallRequest) -> dict[str, Any] | None:
    """The answer to the same request, if it succeeded and waits here."""
    if not settings().journal.exists():
        return None
    with _opened() as file:
        found = file.execute(f"SELECT entry {SAME_REQUEST}", (*request.who, request.key)).fetchall()
    for [entry] in found:
        earlier, settlement = journal_entry.loaded(entry)
        if settlement.error is None and earlier.fingerprint == request.fingerprint:
            return settlement.payload
    return None


def is_waiting_for(request: CallRequest) -> bool:
    """Whether the journal holds an outcome of the same request."""
    try:
        found = settings().journal.stat()
        seen = found.st_mtime_ns, found.st_size
        if seen == known.empty_as:
            return False
        with _opened() as file:
            [same] = file.execute(f"SELECT count(*) {SAME_REQUEST}", (*request.who, request.key)).fetchone()
            is_empty = file.execute("SELECT 1 FROM outcomes LIMIT 1").fetchone() is None
    except FileNotFoundError:
        return False
    except (sqlite3.Error, OSError) as error:
        log.warning("provider journal waits", error_type=type(error).__name__)
        return False
    known.empty_as = seen if is_empty and time.time() - found.st_mtime > STILL else None
    return bool(same)


def waiting() -> int:
    """The number of outcomes that the database does not know yet."""
    if not settings().journal.exists():
        return 0
    with _opened() as file:
        [count] = file.execute("SELECT count(*) FROM outcomes").fetchone()
    return int(count)


def replay_known() -> None:
    """Settle what waits, where `known` says that something may. That it fails is no trouble of ours."""
    known.has_outcomes = False  # so that nobody else of this process begins as well
    try:
        # A call is not to be held up for long: what could not be settled before is left to `maintain`.
        if _replay("SELECT id, entry FROM outcomes WHERE failures = 0 ORDER BY id LIMIT ?") == BATCH:
            known.has_outcomes = True
    except Exception as error:  # noqa: BLE001 (of the file or of the database)
        known.has_outcomes = True
        log.warning("provider journal waits", error_type=type(error).__name__)


def replay() -> int:
    """Settle what waits, oldest first; how many. It ends at once while the database is away."""
    return _replay("SELECT id, entry FROM outcomes ORDER BY failures, id LIMIT ?")


def replay_same(request: CallRequest) -> None:
    """Settle the outcomes of the same request. That it fails is no trouble of ours."""
    try:
        _replay(f"SELECT id, entry {SAME_REQUEST} ORDER BY id LIMIT ?", *request.who, request.key)
    except Exception as error:  # noqa: BLE001 (of the file or of the database)
        log.warning("provider journal waits", error_type=type(error).__name__)


def _replay(chosen: str, *given: str) -> int:
    if not settings().journal.exists():
        return 0
    with _opened() as file:
        rows = file.execute(chosen, [*given, BATCH]).fetchall()
    count = 0
    for number, entry in rows:
        try:
            with sql.lost_connections_closed(), time_limit(LIMIT):
                _settle(*journal_entry.loaded(entry))
        except sql.LOST:
            known.has_outcomes = True
            break
        except Exception as error:  # noqa: BLE001 (it must not keep the others waiting: it is tried last, and stays)
            about = {"entry": number, "traceback": failures.traceback_of(error)}
            log.error("provider outcome could not be settled", **about)  # noqa: TRY400 (no secrets)
            with _opened() as file:
                file.execute("UPDATE outcomes SET failures = failures + 1 WHERE id = ?", [number])
            continue
        with _opened() as file:
            file.execute("DELETE FROM outcomes WHERE id = ?", [number])
        count += 1
    return count


def _settle(request: CallRequest, settlement: Settle) -> None:
    """Settle an outcome. The key of a call that was made without the database is claimed first."""
    settling.claim_afterwards(request)
    if settlement.cooldown is not None:
        # A pause counts from when it was asked for.
        left = request.asked_at + settlement.duration + settlement.cooldown - time.time()
        settlement = settlement._replace(cooldown=left if left > 0 else None)
    settling.settle(request, settlement)


@contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    """The file in a transaction, made if it is not there."""
    path = settings().journal
    # Made by us: SQLite would let others read it.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, OWNER_ONLY))
    with closing(sqlite3.connect(path, timeout=WAIT)) as file:
        file.execute("PRAGMA synchronous = FULL")
        file.execute(f"PRAGMA max_page_count = {MOST_PAGES}")
        with file:
            file.execute(TABLE)
            yield file
