"""Hands boundaries over until somebody stops it, each in a thread of its own, and only one process for each.

A handoff may take long, and its statements have no time limit; the looks of the main thread have one, and cut the
others short when the database does not answer them.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum

import structlog
from django.db import DatabaseError, InterfaceError

from ergon_site.access.database.calls import DatabaseTimeoutError, close_connection, time_limit
from ergon_site.access.database.watched_calls import WatchedCalls
from facts import telemetry
from facts.conf import settings
from facts.core import gates
from facts.core.errors import AlarmError, FactError
from facts.core.gates import Gate
from facts.core.texts import told
from facts.forwarding.handoff import AT_ONCE, Handed, hand_over
from facts.forwarding.sources import Source, source_of
from facts.ledger import boundaries, gating, holding
from facts.ledger.boundaries import Seen, Signs, look_at, signs_of
from facts.ledger.receiving import NotHoldingError
from facts.models import Boundary

# How long a peer may wait for facts before it answers that there are none; a stop waits for it.
POLL = 1.0
# How often this database is asked for new facts, of all boundaries at once; and how often after a quiet while.
LOOK, SELDOM, QUIET = 0.1, 0.25, 10.0
# How long a boundary rests that has nothing to hand over, or must not, unless a look finds a change.
IDLE = 60.0
# How long it rests after trouble with the database, or with another process.
ASIDE = 1.0
LOOK_FOR_NEW = 5.0
# A process that has died holds its boundary until its term is over; a drain waits for that, and looks once more.
PATIENCE = holding.TERM.total_seconds() + 2 * ASIDE

Tell = Callable[..., None]
log = structlog.get_logger("ergon.forward")


class Standing(StrEnum):
    """Why a boundary is not being handed over, if it is not."""

    WORKING = "working"
    DRAINED = "drained"
    FAILING = "failing"
    ALARM = "alarm"
    CLOSED = "closed"
    RETIRED = "retired"
    HELD = "held by another process"


class Forwarder:
    """Forwards one boundary. `handed`, `backlog` and `standing` are for reports."""

    def __init__(self, boundary: Boundary, tell: Tell, calls: WatchedCalls, *, is_draining: bool) -> None:
        self.name = str(boundary)
        self.handed, self.backlog = 0, 0
        self.standing, self.reason = Standing.WORKING, ""
        self._id, self._tell, self._calls, self._is_draining = boundary.pk, tell, calls, is_draining
        self._holder = holding.new_holder()
        self._hold_until = 0.0
        self._patient_until = 0.0
        self._at_once = AT_ONCE
        self._source: Source | None = None
        self._known: Signs | None = None  # while it rests until these change
        self._is_over = False
        self._is_due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ergon-forward-{boundary.pk}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def id(self) -> int:
        return self._id

    @property
    def is_resting(self) -> bool:
        return self._known is not None

    @property
    def holder(self) -> str | None:
        """Under which name it holds its boundary; None while another process does."""
        return None if self.standing is Standing.HELD else self._holder

    def stop(self) -> None:
        self._is_over = True
        self._is_due.set()

    def notice(self, seen: Seen) -> bool:
        """End the rest if there is something to do by now."""
        is_wanted = {Standing.HELD: seen.is_free, Standing.WORKING: seen.has_facts}.get(self.standing, False)
        if is_wanted or seen.signs != self._known:
            self.wake()
        return self._is_due.is_set()

    def wake(self) -> None:
        """Look whether the boundary is still this one's to hand over."""
        self._hold_until = 0.0
        self._is_due.set()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        rest = 0.0
        while not self._rested(rest):
            try:
                with self._calls.call():
                    rest = self._turn()
            except (DatabaseError, InterfaceError) as error:
                told = str(error).partition("\n")[0]
                log.error("database_refuses", boundary=self.name, error=told)  # noqa: TRY400 (no trace is needed)
                self._hold_until, rest = 0.0, ASIDE
                close_connection()
            except Exception as error:
                log.exception("handoff_broke", boundary=self.name)
                rest = self._stand(Standing.FAILING, f"{type(error).__name__}: {error}")
            is_patient = self.standing is Standing.HELD and time.monotonic() < self._patient_until
            if self._is_draining and self.standing is not Standing.WORKING and not is_patient:
                break
        self._close_source()
        # The term ends by itself.
        with suppress(DatabaseError, InterfaceError), self._calls.call(), time_limit(settings().database_timeout):
            holding.let_go(Boundary(pk=self._id), self._holder)
        close_connection()

    def _rested(self, seconds: float) -> bool:
        """Whether it was stopped meanwhile."""
        self._is_due.wait(seconds)
        self._is_due.clear()
        self._known = None
        return self._is_over

    def _turn(self) -> float:
        """Make a handoff if one may be made; the time to rest."""
        boundary = Boundary.objects.select_related("from_zone", "to_zone").get(pk=self._id)
        if boundary.is_retired:
            # One who brings it back finds it among the new ones.
            self.stop()
            return self._stand(Standing.RETIRED)
        # The database is asked a few times in each term.
        if time.monotonic() >= self._hold_until:
            if not holding.hold(boundary, self._holder):
                if self.standing is not Standing.HELD:
                    self._patient_until = time.monotonic() + PATIENCE
                return self._rest(boundary, Standing.HELD, boundary.held_by or "")
            self._hold_until = time.monotonic() + holding.TERM.total_seconds() / 3
        if self.standing is Standing.HELD:
            self._go_on()
        is_closed = bool(boundary.gate_by)
        if gates.may_try(Gate(boundary.gate), is_closed_by_person=is_closed, is_alarmed=bool(boundary.alarm)):
            return self._attempt(boundary)
        if boundary.alarm:
            return self._rest(boundary, Standing.ALARM, boundary.alarm)
        return self._rest(boundary, Standing.CLOSED, f"{boundary.gate_by}: {boundary.gate_reason}")

    def _attempt(self, boundary: Boundary) -> float:
        try:
            handed = self._hand_over(boundary)
        except AlarmError as error:
            gating.raise_alarm(self._id, error)
            return self._stand(Standing.ALARM, error.message)
        except NotHoldingError:
            self._hold_until = 0.0
            return ASIDE
        except FactError as error:
            return self._fail(error.message)
        except (DatabaseError, InterfaceError):
            raise
        except Exception as error:
            log.exception("handoff_broke", boundary=self.name)
            return self._fail(f"{type(error).__name__}: {error}")
        telemetry.handed_over.add(handed.new)
        self.handed += handed.new
        self.backlog = handed.backlog
        if self.standing not in (Standing.WORKING, Standing.DRAINED):
            self._go_on()
        if handed.new:
            place = {"frontier": handed.frontier, "backlog": handed.backlog}
            self._tell("handed_over", boundary=self.name, count=handed.new, **place)
        if handed.fetched:
            return 0.0
        if self._is_draining:
            return self._stand(Standing.DRAINED)
        return 0.0 if boundary.is_remote else self._rest(boundary, self.standing, self.reason)

    def _hand_over(self, boundary: Boundary) -> Handed:
        """Ask for fewer facts after a failure and for more after a success: a slow link carries few in the time."""
        if self._source is None:
            self._source = source_of(boundary)
        wait, at_once = 0.0 if self._is_draining else POLL, self._at_once
        self._at_once = max(1, at_once // 2)
        handed = hand_over(boundary, self._source, holder=self._holder, wait=wait, at_once=at_once)
        self._at_once = min(2 * at_once, AT_ONCE)
        return handed

    def _go_on(self) -> None:
        self.standing, self.reason = Standing.WORKING, ""
        self._tell("reopened", boundary=self.name)

    def _fail(self, error: str) -> float:
        reason = told(error)
        self._close_source()
        telemetry.handoff_failures.add(1)
        failures = gating.note_failure(self._id, reason)
        if not self._is_draining or failures >= gates.FAILURES:
            self._stand(Standing.FAILING, reason)
        return gates.wait_after(failures)

    def _stand(self, standing: Standing, reason: str = "") -> float:
        """Report a standstill when it begins and when its reason changes."""
        if (standing, reason) != (self.standing, self.reason):
            self.standing, self.reason = standing, reason
            self._tell(standing.name.lower(), boundary=self.name, reason=reason)
        return ASIDE

    def _rest(self, boundary: Boundary, standing: Standing, reason: str) -> float:
        """Rest until something changes about the boundary as it was read. A drain, which nobody wakes, looks again."""
        self._stand(standing, reason)
        self._known = signs_of(boundary)
        return ASIDE if self._is_draining else IDLE

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None


class Forwarding:
    """All boundaries of this process: those that are named, or all there are, new ones included.

    What happens is told by name and fields: `handed_over`, `drained`, `failing`, `alarm`, `closed`, `held`,
    `retired`, `reopened`.
    """

    def __init__(self, chosen: Sequence[Boundary], tell: Tell, *, is_draining: bool, is_all: bool) -> None:
        self._tell, self._is_draining, self._is_all = tell, is_draining, is_all
        self._forwarders: dict[int, Forwarder] = {}
        self._busy_at = self._keep_at = self._look_by = 0.0
        self._calls = WatchedCalls()
        self._is_over = threading.Event()
        telemetry.begin_to_forward()
        self._add(chosen)

    @property
    def forwarders(self) -> list[Forwarder]:
        return list(self._forwarders.values())

    def run(self, each_turn: Callable[[], None]) -> None:
        """Until `stop`, or until all are drained or cannot be."""
        look_at = time.monotonic() + LOOK_FOR_NEW
        while not self._is_over.wait(SELDOM if time.monotonic() > self._busy_at + QUIET else LOOK):
            each_turn()
            self._look()
            if self._is_draining and not any(one.is_running for one in self.forwarders):
                break
            if self._is_all and not self._is_draining and time.monotonic() >= look_at:
                try:
                    with time_limit(settings().database_timeout):
                        new = boundaries.ids_in_use() - self._in_hand()
                        found = list(boundaries.in_use()) if new else []
                    self._add(found)
                except (DatabaseError, InterfaceError) as error:
                    self._note_outage(error)
                except RuntimeError as error:  # the machine has no more threads at present: the next look tries again
                    log.warning("boundary_not_forwarded", error=str(error))
                look_at = time.monotonic() + LOOK_FOR_NEW
        for forwarder in self.forwarders:
            forwarder.stop()
        ends_at = time.monotonic() + 2 * POLL + max(gates.LONGEST_WAIT, settings().handoff_timeout)
        for forwarder in self.forwarders:
            forwarder.join(max(0.0, ends_at - time.monotonic()))
        each_turn()

    def _look(self) -> None:
        """Wake those that have something to do, and keep what the others hold; now and then though nobody rests."""
        resting = {one.id: one for one in self.forwarders if one.is_resting}
        if len(resting) < len(self._forwarders):
            self._busy_at = time.monotonic()
        if not self._forwarders or (not resting and time.monotonic() < self._look_by):
            return
        self._look_by = time.monotonic() + LOOK_FOR_NEW
        try:
            with time_limit(settings().database_timeout):
                for seen in look_at(list(resting or self._forwarders)):
                    if seen.id in resting and resting[seen.id].notice(seen):
                        self._busy_at = time.monotonic()
                if resting and time.monotonic() >= self._keep_at:
                    self._keep([one for one in resting.values() if one.is_resting])
        except (DatabaseError, InterfaceError) as error:
            self._note_outage(error)
            for one in resting.values():
                one.wake()

    def _note_outage(self, error: Exception) -> None:
        """Each thread says so by itself, unless it would wait for ever for a server that does not answer any more."""
        close_connection()
        if isinstance(error, DatabaseTimeoutError):
            log.error("database_refuses", error=str(error))
            self._calls.cut()

    def _keep(self, resting: list[Forwarder]) -> None:
        """What rests asks for no further term by itself."""
        holders = {one.id: one.holder for one in resting if one.holder is not None}
        if holders and not holding.keep_all(holders):
            for one in resting:
                one.wake()
        self._keep_at = time.monotonic() + holding.TERM.total_seconds() / 3

    def stop(self) -> None:
        """Let the handoffs at hand end."""
        self._is_over.set()

    def _in_hand(self) -> set[int]:
        return {number for number, one in self._forwarders.items() if one.standing is not Standing.RETIRED}

    def _add(self, found: Sequence[Boundary]) -> None:
        for boundary in found:
            if boundary.pk not in self._in_hand():
                forwarder = Forwarder(boundary, self._tell, self._calls, is_draining=self._is_draining)
                self._forwarders[boundary.pk] = forwarder
