"""Runs the maintenance jobs in one process at a time: leads, stands by, takes over, waits for a lost database."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from typing import Any, NamedTuple

import structlog
from django.db import DatabaseError, InterfaceError, connection
from django.utils.module_loading import import_string

from engines import dead_letters, rehearsals, schedules, transactions, workers
from engines.conf import settings
from engines.connectors import freshness
from engines.core.backoff import exponential
from engines.core.errors import headline
from engines.core.pacing import Intervals
from engines.dead_letters import bulk
from engines.reads import depth
from engines.workers import MAINTENANCE
from ergon_site.access import idempotency
from ergon_site.access.database.calls import DatabaseTimeoutError, close_connection, time_limit
from ergon_site.access.database.refusals import is_unavailable
from ergon_site.access.database.watched_calls import WatchedCalls

RESCUE = "rescued"


class Chore(NamedTuple):
    """Something to be done every so many seconds; what it returns counts what it did."""

    name: str
    every: float
    run: Callable[[], int]


def all_chores(lease: float) -> list[Chore]:
    return [
        Chore(RESCUE, lease / 6, lambda: sum(transactions.rescue())),
        Chore("workers_lost", lease / 3, workers.notice_the_dead),
        Chore("scheduled", 1.0, schedules.fire),
        Chore("bulk", 1.0, bulk.advance),
        Chore("rehearsed", 1.0, rehearsals.advance),
        # Asked more often than once a minute, so that no minute is left out; only the first asking in each counts.
        Chore("sampled", 15.0, depth.sample),
        Chore("folded", 60.0, transactions.fold_counts),
        Chore("pruned", 600.0, lambda: transactions.prune().total),
        Chore("trends", 3600.0, dead_letters.forget_trends),
        Chore("samples_forgotten", 3600.0, depth.forget),
        Chore("workers_forgotten", 3600.0, workers.forget),
        Chore("rehearsals_forgotten", 3600.0, rehearsals.forget),
        Chore("requests_forgotten", 600.0, idempotency.forget_old),
        *(Chore(name, every, import_string(path)) for name, (every, path) in settings().chores.items()),
    ]


# Chores that are wanted less often may take long; they have a thread of their own, so that the others stay punctual.
LEISURELY = 60.0
TURN = 1.0
# How often a thread that may not do its chores looks whether it may.
LOOK = 0.25
GRACE = 5.0

Tell = Callable[..., None]
logger = structlog.get_logger("ergon.maintenance")


class DatabaseLostError(Exception):
    """The database does not answer or takes no changes: no chore is to blame."""


class Maintenance:
    """Runs chores at their intervals, as long as no other process does.

    The main thread leads: what it asks of the database is quick, and has a time limit. Chores, in threads of their own,
    may take as long as they need; when the main thread gets no answer, those that wait for the database are cut.

    What happens is told by name and fields: `leading`, `standing_by`, `done`, `failed`, `database_lost`,
    `database_back`, `stopped`.
    """

    def __init__(self, tell: Tell, *, chores: Iterable[Chore] | None = None) -> None:
        lease = settings().lease
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._tell = tell
        self._chores = {chore.name: chore for chore in (all_chores(lease) if chores is None else chores)}
        self._term = lease / 2
        self._failing: dict[str, str] = {}
        self._leading, self._stop, self._wake = Event(), Event(), Event()
        self._is_led: bool | None = None
        self._renew_at = self._led_until = self._rescues_from = float("-inf")
        self._calls = WatchedCalls()
        self._trouble: Exception | None = None  # of a thread, for the main one

    def once(self) -> bool:
        """Every chore once, unless another process does them; False if one of them failed."""
        if not self._lead():
            return not self._failing
        self._let_workers_renew()
        doing = Thread(target=self._run_round, name="maintenance", daemon=True)
        doing.start()
        try:
            while doing.is_alive():
                self._lead()
                doing.join(min(self._term / 6, TURN))
            self._raise_trouble()
        except DatabaseLostError:
            self._let_go()
            raise
        finally:
            self._resign()
        return not self._failing

    def run(self, each_turn: Callable[[], None] = lambda: None) -> None:
        every = {name: chore.every for name, chore in self._chores.items()}
        quick = {name: seconds for name, seconds in every.items() if seconds < LEISURELY}
        slow = {name: seconds for name, seconds in every.items() if seconds >= LEISURELY}
        threads = [
            Thread(target=self._run_chores, args=[Intervals(some)], name="maintenance", daemon=True)
            for some in (quick, slow)
        ]
        self._let_workers_renew()  # the database may be back only now
        for thread in threads:
            thread.start()
        while not self._stop.is_set():
            try:
                self._raise_trouble()
                self._lead()
            except DatabaseLostError as error:
                self._await_database(error)
            each_turn()
            # Until the term must be renewed, or the leader may be gone.
            wait = self._renew_at - time.monotonic() if self._leading.is_set() else self._term / 6
            self._wake.wait(min(max(0.0, wait), TURN))
            self._wake.clear()
        ends_at = time.monotonic() + GRACE
        for thread in threads:
            thread.join(max(0.0, ends_at - time.monotonic()))
        self._resign()
        self._tell("stopped")

    def stop(self) -> None:
        """Let the chores at hand end, and no other begin."""
        self._stop.set()
        self._wake.set()

    @property
    def is_leading(self) -> bool:
        return self._leading.is_set()

    def _run_round(self) -> None:
        """Run every chore once, as long as this process leads; the rescue, which may have to wait, last."""
        try:
            for chore in sorted(self._chores.values(), key=lambda one: one.name == RESCUE):
                if self._leading.is_set():
                    self._do(chore, is_in_round=True)
        except Exception as error:  # noqa: BLE001 (for the main thread)
            self._trouble = error
        finally:
            close_connection()

    def _run_chores(self, due: Intervals) -> None:
        """Run these chores whenever they are due and this process leads."""
        wait, rested_from = 0.0, freshness.now()
        while not self._stop.wait(wait):
            if freshness.age(rested_from) > wait + settings().heartbeat:
                self._let_workers_renew()  # which may have stood still with this machine
            cuts = self._calls.cuts
            try:
                self._turn(due)
            except Exception as error:  # noqa: BLE001 (the main thread awaits the database, or ends the process)
                # What was cut, or found out meanwhile, is known.
                if not isinstance(error, DatabaseLostError) or cuts == self._calls.cuts:
                    self._leading.clear()  # first: who takes note of the trouble leads again after it
                    self._trouble = error
                    self._wake.set()
            wait = min(max(0.0, due.next_at() - time.monotonic()), TURN) if self._may_run() else LOOK
            rested_from = freshness.now()
        close_connection()

    def _turn(self, due: Intervals) -> None:
        for name in due.due(time.monotonic()):
            if self._stop.is_set() or not self._may_run():
                return
            if name == RESCUE and time.monotonic() < self._rescues_from:
                due.done(name, self._rescues_from - self._chores[name].every)
                continue
            self._do(self._chores[name])
            due.done(name, time.monotonic())

    def _may_run(self) -> bool:
        """Whether this process leads; one that was frozen beyond its term must ask first."""
        return self._leading.is_set() and time.monotonic() < self._led_until

    def _raise_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def _let_workers_renew(self) -> None:
        """Workers were cut off as well: before their leases are taken from them, they have time to renew."""
        self._rescues_from = time.monotonic() + settings().time_to_renew

    def _await_renewals(self) -> None:
        """Wait as long as leases have lapsed that may still be renewed."""
        while time.monotonic() < self._rescues_from and transactions.is_any_lapsed():
            time.sleep(LOOK)

    def _lead(self) -> bool:
        """Whether this process does the chores; asked of the database a few times in each term."""
        asked_at = time.monotonic()
        if self._leading.is_set() and asked_at < self._renew_at:
            return True
        is_led = self._asked(self._ask_to_lead)
        self._renew_at, self._led_until = asked_at + self._term / 3, asked_at + self._term
        if is_led is self._is_led:
            return bool(is_led)
        self._is_led = is_led
        if is_led:
            self._leading.set()
            self._tell("leading", holder=self.holder)
        else:
            self._leading.clear()
        if is_led is False:
            self._tell("standing_by", leader=self._asked(lambda: workers.leader(MAINTENANCE)))
        return bool(is_led)

    def _ask_to_lead(self) -> bool:
        return workers.lead(MAINTENANCE, self.holder, term=timedelta(seconds=self._term))

    def _asked(self, question: Callable[[], Any]) -> Any:
        """What the database says about the leadership; None if the question failed."""

        def ask() -> Any:
            limit = time_limit(settings().database_timeout)
            try:
                with limit:
                    return question()
            except (DatabaseError, InterfaceError) as error:
                is_silent = isinstance(error, DatabaseTimeoutError)
                if limit.was_connected and connection.connection is None and not is_silent:
                    return ask()  # a connection that was closed while it rested is no outage
                if is_unavailable(error):
                    # Even where a new connection is had at once: that may be to another server.
                    raise DatabaseLostError(headline(error)) from error
                raise

        return self._tried("leadership", ask)

    def _resign(self) -> None:
        if self._leading.is_set():
            self._leading.clear()
            # The term ends by itself.
            with suppress(DatabaseError, InterfaceError), time_limit(settings().database_timeout):
                workers.resign(MAINTENANCE, self.holder)

    def _do(self, chore: Chore, *, is_in_round: bool = False) -> None:
        def run() -> int:
            cuts = self._calls.cuts
            try:
                with self._calls.call():
                    if is_in_round and chore.name == RESCUE:
                        self._await_renewals()
                    return chore.run()
            except Exception as error:
                if cuts != self._calls.cuts:
                    raise DatabaseLostError(headline(error)) from error
                raise

        started = time.monotonic()
        count = self._tried(chore.name, run)
        if count or (is_in_round and count is not None):
            self._tell("done", chore=chore.name, count=count, seconds=round(time.monotonic() - started, 3))

    def _tried(self, name: str, run: Callable[[], Any]) -> Any:
        """The result; None if it failed, which is reported once for as long as it fails in the same way."""
        began = time.monotonic()
        try:
            result = run()
        except DatabaseLostError:
            raise
        except Exception as error:
            if not _is_reachable():
                raise DatabaseLostError(headline(error)) from error
            if name == RESCUE and is_unavailable(error):  # leases are renewed in the same table
                self._let_workers_renew()
            message = f"{type(error).__name__}: {headline(error)}"
            if self._failing.get(name) != message:
                self._failing[name] = message
                self._tell("failed", chore=name, error=message)
                # What a database says of a row that it refuses may hold a payload.
                is_safe = not _is_of_database(error)
                logger.error("maintenance chore failed", chore=name, error=message, exc_info=is_safe)  # noqa: TRY400
            return None
        if time.monotonic() - began > settings().heartbeat:  # the database may have stood still
            self._let_workers_renew()
        self._failing.pop(name, None)
        return result

    def _let_go(self) -> None:
        """The database is lost: no chore begins, and those that wait for it are cut."""
        self._leading.clear()
        self._is_led = None
        self._calls.cut()

    def _await_database(self, error: Exception) -> None:
        self._let_go()
        self._tell("database_lost", error=str(error))
        logger.warning("the database does not answer or takes no changes", error=str(error))
        started, tries = time.monotonic(), 0
        while not self._stop.wait(exponential(tries, backoff=0.25, multiplier=2.0, cap=5.0)):
            tries += 1
            if self._is_back():
                seconds = round(time.monotonic() - started, 1)
                self._tell("database_back", seconds=seconds)
                logger.warning("the database answers again", seconds=seconds)
                break
        if isinstance(self._trouble, DatabaseLostError):  # a thread has found out as well
            self._trouble = None
        self._let_workers_renew()

    def _is_back(self) -> bool:
        """Whether the database also takes changes: one that is read-only or full can be reached."""
        try:
            with time_limit(settings().database_timeout):
                close_connection()
                self._ask_to_lead()
        except (DatabaseError, InterfaceError) as error:
            return not is_unavailable(error)
        return True


def _is_reachable() -> bool:
    try:
        with time_limit(settings().database_timeout):
            close_connection()
            connection.ensure_connection()
    except DatabaseError:
        return False
    return True


def _is_of_database(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, DatabaseError) or _is_of_database(error.__cause__))
