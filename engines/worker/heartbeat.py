"""Shared by the database connectors of a process: worker row, heartbeat, leases, connections, completer, poller."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import structlog
from django.db import DatabaseError, OperationalError, connection

from engines import transactions, workers
from engines.conf import settings
from engines.connectors import freshness
from engines.core.errors import DependencyError, headline
from engines.transactions import Lease, LeasedTransaction
from engines.worker.completer import Completer
from engines.worker.connections import SharedConnections
from engines.worker.database_retry import LONGEST_WAIT, DatabaseRetry
from engines.worker.notifier import Notifier
from engines.worker.poller import Poller
from ergon_site.access.database.calls import close_connection, time_limit

# How many connections all pipelines of a process share for their claims.
FOR_CLAIMS = 2
# How often a start that waits for its connections looks whether it has them.
LOOK = 0.1
# Ids in a line of the log.
NAMED = 5

OnLost = Callable[[Sequence[LeasedTransaction]], None]
log = structlog.get_logger("ergon.worker")


class ConnectionsMissingError(OperationalError):
    """Nothing is claimed while outcomes could not be written or leases not be renewed."""


class Heartbeat:
    """Makes this process a worker for as long as the block lasts."""

    def __init__(
        self,
        pipelines: Sequence[str],
        abandoned: Callable[[], int] = lambda: 0,
        executors: Callable[[], list[dict[str, Any]]] = list,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._pipelines = list(pipelines)
        self.has_many_pipelines = len(self._pipelines) > 1
        self._abandoned, self._executors, self._is_wanted = abandoned, executors, is_wanted
        self._held: dict[int, LeasedTransaction] = {}
        # Could not be given back; in flight until the database answers.
        self.unreturned = 0
        # Leases that were held when the database came back from its last outage.
        self._outlasting: frozenset[tuple[int, int]] = frozenset()
        self._renewing = threading.Lock()
        self._on_lost: dict[int, OnLost | None] = {}
        self._untold: Counter[tuple[int, bool]] = Counter()
        # The tally that the database has not confirmed yet, and its number.
        self._telling: Counter[tuple[int, bool]] = Counter()
        self._tally_number = 0
        self._errands: list[Callable[[], None]] = []
        # What is in flight and has no lease here.
        self.elsewhere: list[Callable[[], int]] = []
        self._said: dict[Callable[[], Any], str] = {}
        self._tallying = threading.Lock()
        self._over, self._is_connected = threading.Event(), threading.Event()
        self._retry = DatabaseRetry(
            "renew leases",
            limit=settings().heartbeat_limit,
            slow=settings().heartbeat / 2,
            longest_wait=min(LONGEST_WAIT, settings().lease / 6),
        )
        self.connections = SharedConnections(FOR_CLAIMS)
        self.poller = Poller(self.connections.borrow, self.require_connections)
        self.notifier: Notifier | None = None
        self.is_stopping = False

    def __enter__(self) -> Self:
        self.worker = workers.enrol(self._pipelines)
        self.completer = Completer(self.worker.pk, self.drop, self._note_outage, self.poller.remind)
        self._heart = threading.Thread(target=self._beat, name="ergon-heart", daemon=True)
        self._heart.start()
        connection.close()  # one less, for those that it waits for
        try:
            self._await_connections()
            self.notifier = Notifier(self.poller)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._retry.give_up()
        self._heart.join(1.0)
        if self.notifier is not None:
            self.notifier.close()
        self.poller.close()
        self.completer.close()
        connection.close()  # the farewell needs one that is surely alive; without it the missing heartbeat says as much
        if not self.is_cut_off:
            try:
                with time_limit(settings().heartbeat_limit):
                    self._write_tally()
                    self._count_durations()
                    workers.retire(self.worker.pk, settled=self.completer.settled, executors=self._executors())
            except DatabaseError as error:
                log.warning("farewell_unheard", error=headline(error))
        self.connections.close()

    def _await_connections(self) -> None:
        """Connect the completer, renewals and claims first, then the notifier: a claim must be settled."""
        until = time.monotonic() + settings().start_timeout
        claims = DatabaseRetry("claim", borrow=self.connections.borrow)
        while True:
            if self.completer.is_connected.wait(LOOK) and self._is_connected.wait(LOOK):
                # The connection that is borrowed by then, not the one of this thread.
                claims.try_once(lambda: connection.ensure_connection())  # noqa: PLW0108
                if not claims.is_out:
                    return
            if not self._is_wanted():
                return
            if time.monotonic() >= until:
                msg = (
                    f"the database gave no connections to claim and settle within {settings().start_timeout:g} s;"
                    f" a worker needs {workers.CONNECTIONS}, and those that its handlers open: see the command doctor"
                )
                raise DependencyError(msg)

    @property
    def in_flight(self) -> int:
        return len(self._held) + self.unreturned + sum(count() for count in self.elsewhere)

    @property
    def is_cut_off(self) -> bool:
        """Whether outcomes cannot be written or leases not be renewed at present."""
        return self.completer.is_cut_off or self._retry.is_out

    def require_connections(self) -> None:
        self.completer.refuse_after_fault()
        if self.is_cut_off:
            msg = "no transactions are claimed while outcomes cannot be written or leases cannot be renewed"
            raise ConnectionsMissingError(msg)

    def hold(self, batch: Iterable[LeasedTransaction]) -> list[LeasedTransaction]:
        """Renew their leases until they are settled or given back; those that do not run here already.

        A crash of the server can take a claim back, and this worker may be the one that makes it again, with the same
        token. What runs under the first claim then ends the second one too.
        """
        new = []
        for transaction in batch:
            lease, known = transaction.lease, self._held.get(transaction.lease.id)
            is_running = known is not None and known.lease.token == lease.token
            if not is_running and (lease.id, lease.token) not in self._outlasting:
                self._held[lease.id] = transaction
                new.append(transaction)
        return new

    def drop(self, batch: Iterable[LeasedTransaction]) -> None:
        for transaction in batch:
            if self._held.get(transaction.lease.id) is transaction:
                del self._held[transaction.lease.id]

    def let_lapse(self, pipeline_id: int) -> None:
        """Renew no more what a pipeline's loop has left running: should it never end, others get it all the same."""
        left = [one for one in list(self._held.values()) if one.lease.pipeline_id == pipeline_id]
        self.drop(one for one in left if not one.lease.is_settling)

    def on_lost(self, pipeline_id: int, callback: OnLost | None) -> None:
        """Call this with transactions of the pipeline whose lease is lost; None for nobody."""
        self._on_lost[pipeline_id] = callback

    def confirm(self, lease: Lease) -> bool:
        """Ask the database whether a lease is still ours, and about all others by the way.

        An answer that is too old when it comes says nothing: whoever took it for a no would hold the transaction, and
        never run it.
        """
        with self._renewing:
            while self._holds(lease) and not lease.is_confirmed:
                self._renew_leases()
        return lease.is_confirmed

    def _holds(self, lease: Lease) -> bool:
        known = self._held.get(lease.id)
        return known is not None and known.lease is lease and not lease.is_settling

    def tally(self, pipeline_id: int, *, is_success: bool) -> None:
        """Count what ended elsewhere; written down with the next heartbeat."""
        with self._tallying:
            self._untold[pipeline_id, is_success] += 1

    def at_every_beat(self, errand: Callable[[], None]) -> None:
        """Do this every second or so, where the database may be asked."""
        self._errands.append(errand)

    def flush(self) -> None:
        """Whatever takes longer than a lease is run by somebody else anyway."""
        self.completer.flush(settings().lease)

    def _note_outage(self) -> None:
        """The database is back: it may have forgotten claims of what is held now."""
        self._outlasting = frozenset((one.lease.id, one.lease.token) for one in list(self._held.values()))

    def _beat(self) -> None:
        """Renew, report, rescue; a heart that cannot beat tries until it can."""
        self._try(connection.ensure_connection)
        self._is_connected.set()
        following, every, turn = 0.0, settings().heartbeat, min(1.0, settings().lease / 10)
        rested_from = freshness.now()
        while not self._over.wait(turn):
            if freshness.age(rested_from) > turn + every:
                # The machine stood still, perhaps with other workers on it, which come to renew only now.
                self._retry.begin_anew()
                following = 0.0
            if time.monotonic() >= following or self._retry.is_out:
                following = time.monotonic() + every
                self._try(self._renew)
                self._try(self._count_durations, self._retry.try_once)
            if self._retry.answering_for >= settings().time_to_renew:
                self._try(self._rescue, self._retry.try_once)
            self._try(self._prepare_attempts, lambda prepare: prepare())
            for errand in (self._write_tally, self._note_attempts, *self._errands):
                self._try(errand, self._retry.try_once)
            rested_from = freshness.now()
        connection.close()

    def _try(self, call: Callable[[], Any], perform: Callable[[Callable[[], Any]], Any] | None = None) -> None:
        """A heart that stopped would let every lease lapse while the process works on: nothing may stop it."""
        try:
            (perform or self._retry.wait_out)(call)
        except Exception as error:
            if self._said.get(call) != headline(error):  # once, not at every beat
                log.exception("heartbeat_failed", to=call.__name__.strip("_"), error=headline(error))
            self._said[call] = headline(error)
            close_connection()
        else:
            self._said.pop(call, None)

    def _write_tally(self) -> None:
        """Without an answer, write the same tally the next time, under its number: it may have been counted."""
        for _ in range(2):  # the one without an answer, and what has come since
            with self._tallying:
                if not self._telling and self._untold:
                    self._telling, self._untold = self._untold, Counter()
                    self._tally_number += 1
            if self._telling:
                if not transactions.count_tally(self._telling, worker=self.worker.pk, number=self._tally_number):
                    return  # until it is enrolled again
                self._telling = Counter()

    def _count_durations(self) -> None:
        waiting, durations = self.completer.durations, defaultdict(list)
        for _ in range(len(waiting)):
            pipeline_id, duration = waiting.popleft()
            durations[pipeline_id].append(duration)
        try:
            for pipeline_id in list(durations):
                transactions.count_durations(pipeline_id, durations[pipeline_id])
                del durations[pipeline_id]
        finally:  # what the database did not take is counted the next time
            waiting.extendleft((pipeline_id, one) for pipeline_id, some in durations.items() for one in some)

    def _prepare_attempts(self) -> None:
        """Not while the database waits for it."""
        transactions.prepare([one.lease for one in list(self._held.values())])

    def _note_attempts(self) -> None:
        """Record the attempts of running transactions before they end."""
        transactions.note([one.lease for one in list(self._held.values())], worker=self.worker.pk)

    def _rescue(self) -> None:
        transactions.rescue(sparing=list(self._held))

    def _renew(self) -> None:
        with self._renewing:
            self._renew_leases()
        workers.beat(
            self.worker,
            in_flight=self.in_flight,
            abandoned=self._abandoned(),
            settled=self.completer.settled,
            is_stopping=self.is_stopping,
            executors=self._executors(),
        )
        self.unreturned = 0
        workers.notice_the_dead()

    def _renew_leases(self) -> None:
        """Renew every lease; of those that are lost, what waits leaves the backlog, and what runs is told."""
        held = list(self._held.values())
        renewed = transactions.heartbeat([one.lease for one in held])
        # Others have these transactions now, but for those that were settled or given back meanwhile.
        lost = [
            one
            for one in held
            if one.lease.id not in renewed and self._held.get(one.lease.id) is one and not one.lease.is_settling
        ]
        by_pipeline: dict[int, list[LeasedTransaction]] = {}
        for transaction in lost:
            transaction.lease.is_lost = True
            by_pipeline.setdefault(transaction.lease.pipeline_id, []).append(transaction)
        self.drop(lost)
        if lost:
            hint = "this process renewed them too late; their outcomes are not recorded"
            log.warning("leases_lost", count=len(lost), first=[one.id for one in lost[:NAMED]], hint=hint)
        for pipeline_id, transactions_lost in by_pipeline.items():
            if callback := self._on_lost.get(pipeline_id):
                callback(transactions_lost)
