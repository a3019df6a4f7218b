"""VERBS: rate, mark, show, rollup. What people see of a capability: its health with the rates of the hour, its quota.

A settlement shows its gate at once. In a process that settles very many, on PostgreSQL, a usual success changes its
attempt, minute and gate alone, and a thread shows it with all others of the same second. Gates and minutes tell all
that is shown: what a process that died has not shown, the next call or `maintain` does.
"""

import atexit
import os
import threading
import time
from collections.abc import Mapping

import orjson
import structlog
from django.db import connections
from django.db.models import Exists, OuterRef, Q

from engines.core import failures
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time
from providers.calls.overrides import end_expired_overrides
from providers.core import histogram
from providers.core.exchange import Who
from providers.database import admitting, sql, statements, visible
from providers.models import Gate, ProviderHealthState

log = structlog.get_logger("ergon.providers")
# Gates that are shown with one statement: few, since it holds them all while it waits for one. And those that wait at
# most: others are left to `maintain`.
AT_ONCE, MOST_WAITING = 20, 100_000
# Settlements of a process in a second that each show their gate themselves; what comes after them is shown together.
SHOWN_AT_ONCE = 100
# Seconds: for the database to answer, and after which a thread with nothing to show closes its connection.
LIMIT, IDLE = 5.0, 10.0

# The window that a call of each capability was reserved in, if any.
Marked = dict[Who, float | None]


@retry_conflicts
def rate(gate_id: int, who: Who) -> None:
    """Compute the rates of a capability anew. Whoever has seen less never overwrites who has seen more."""
    clock = sql.dialect().clock
    found = sql.rows(statements.MINUTES.format(clock=clock), {"gate": gate_id})
    for settled in {row[0] for row in found}:
        rates = histogram.rates_of([row[1:] for row in found if row[1] is not None])._asdict()
        sql.rows(statements.RATES.format(clock=clock), {**admitting.named(who), **rates, "settlement": settled})


@retry_conflicts
def show(marked: Mapping[Who, float | None]) -> None:
    """Show a few capabilities as their gates are, on PostgreSQL."""
    gates = [{**admitting.named(who), "reserved_in": start} for who, start in marked.items()]
    sql.rows(visible.show(), {"gates": orjson.dumps(gates).decode()})


def is_shown_at_once() -> bool:
    """Whether what is settled now is to be seen at once: always but in a process that settles very many calls."""
    return not sql.is_postgresql() or sql.is_in_transaction() or board.is_calm()


class Board:
    """What this process has settled and not shown yet, and the thread that shows it."""

    def __init__(self) -> None:
        self._begin_anew()
        # A forked process has none of its parent's threads, and perhaps a held lock.
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self.show_waiting)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._showing = threading.Lock()
        self._waiting: Marked = {}
        self._has_waiting = threading.Event()
        self._is_released = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_away = False
        self._second, self._settled, self._settled_before = 0, 0, 0

    def is_calm(self) -> bool:
        """Whether so little is settled in this second and was in the last that each call can show its gate itself."""
        with self._lock:
            second = int(time.monotonic())
            if second != self._second:
                self._settled_before = self._settled if second == self._second + 1 else 0
                self._second, self._settled = second, 0
            self._settled += 1
            return max(self._settled, self._settled_before) <= SHOWN_AT_ONCE

    def mark(self, who: Who, reserved_in: float | None = None) -> None:
        """Have a capability shown within a second."""
        with self._lock:
            self._add(who, reserved_in)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        """A call must not fail because the machine has no more threads at present: the next mark tries again."""
        self._is_released.clear()
        thread = threading.Thread(target=self._work, name="ergon-provider-health", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("provider health waits", error_type=type(error).__name__)
        else:
            self._thread = thread

    def _add(self, who: Who, reserved_in: float | None) -> None:
        earlier = self._waiting.get(who)
        if earlier is not None and (reserved_in is None or earlier < reserved_in):
            return  # the later window is the present one, which is shown anyway
        if who in self._waiting or len(self._waiting) < MOST_WAITING:
            self._waiting[who] = reserved_in
            self._has_waiting.set()

    def _work(self) -> None:
        while not self._is_released.is_set():
            if not self._has_waiting.wait(IDLE):
                connections.close_all()
                self._has_waiting.wait()
            self._is_released.wait(histogram.RATED_EVERY)
            self.show_waiting()
        connections.close_all()

    def show_waiting(self) -> None:
        """Show all that waits. What the database cannot take now waits on."""
        with self._showing:
            with self._lock:
                waiting, self._waiting = list(self._waiting.items()), {}
                self._has_waiting.clear()
            for begin in range(0, len(waiting), AT_ONCE):
                if not self._is_shown(dict(waiting[begin : begin + AT_ONCE])):
                    with self._lock:
                        for who, reserved_in in waiting[begin:]:
                            self._add(who, reserved_in)
                    return

    def _is_shown(self, marked: Marked) -> bool:
        try:
            with sql.answered_within(LIMIT):
                show(marked)
        except sql.LOST as error:
            if not self._is_away:
                log.warning("provider health waits", error_type=type(error).__name__)
            self._is_away = True
            return False
        except Exception as error:  # noqa: BLE001 (it must not keep the others waiting: `maintain` tries again)
            log.error("provider health not shown", traceback=failures.traceback_of(error))  # noqa: TRY400 (no secrets)
        self._is_away = False
        return True

    def release_connection(self) -> None:
        """Forget what waits, and end the thread; the next mark begins another."""
        with self._showing, self._lock:
            thread, self._thread, self._waiting = self._thread, None, {}
        if thread is not None:
            self._is_released.set()
            self._has_waiting.set()
            thread.join()

    def forget(self) -> None:
        """Forget what waits and how much was settled, once nothing is being shown."""
        with self._showing, self._lock:
            self._waiting = {}
            self._second = 0


board = Board()


def rollup() -> int:
    """Show anew what is not shown yet, and rates that have aged, so that an hour without calls shows; how many."""
    before = database_time().timestamp() - histogram.RATED_EVERY
    end_expired_overrides(before)
    same = {name: OuterRef(name) for name in Who._fields}
    shown = ProviderHealthState.objects.filter(**same)
    aged = shown.filter(Q(rated_at__lt=before) | Q(rated_at__isnull=True), attempts_1h__gt=0)
    is_shown = Exists(shown.filter(rated_settlement__gte=OuterRef("settlements")))
    due = Gate.objects.filter(Exists(aged) | Q(settlements__gt=0) & ~is_shown)
    found = {Who(*names): gate_id for gate_id, *names in due.order_by("pk").values_list("pk", *Who._fields)}
    if sql.is_postgresql():
        whos = list(found)
        for begin in range(0, len(whos), AT_ONCE):
            show(dict.fromkeys(whos[begin : begin + AT_ONCE]))
    else:
        for who, gate_id in found.items():
            rate(gate_id, who)
    return len(found)
