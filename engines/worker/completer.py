"""Gathers outcomes and writes them in batches, so that handlers bound the rate, not commits."""

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from django.db import DataError, IntegrityError, connection

from engines import telemetry, transactions
from engines.conf import settings
from engines.core import failures
from engines.core.attempt import AttemptRecord
from engines.core.errors import ConnectorError, TransactionException, error_text, headline
from engines.core.outcome import Failure, Later, Success
from engines.transactions import NOTED_AT_ONCE, Lease, LeasedTransaction, Settlement
from engines.worker.database_retry import DatabaseRetry, Portion
from ergon_site.access.database.calls import close_connection, short_transaction

# Outcomes in a batch. Where fewer than enough wait, some more may come within a moment. More than that wait where the
# process is busy: the longer it takes to come round, the larger the batch.
ENOUGH, MOST_AT_ONCE = 200, 500
LINGER = 0.005
# Where so many wait, slots let the completer catch up: outcomes are to be written soon after their handlers. In an
# outage many more are taken.
PLENTY, MOST_WAITING = 300, 10_000
LONGEST_ERROR = 500
# Durations that nobody has counted yet: where the heart cannot write, the newest are kept.
MOST_DURATIONS = 100_000

log = structlog.get_logger("ergon.completer")
worker_log = structlog.get_logger("ergon.worker")


class OutcomeNotWrittenError(TransactionException):
    """The database refused the outcome of a transaction, which therefore failed."""


@dataclass
class Counts:
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    postponed: int = 0
    stale: int = 0

    @property
    def settled(self) -> int:
        return self.succeeded + self.failed + self.cancelled


class Completer:
    """A thread that settles. An outage of the database is waited out; nothing is dropped but what lost its lease."""

    def __init__(
        self,
        worker: int,
        done: Callable[[Sequence[LeasedTransaction]], None],
        on_return: Callable[[], None],
        on_parked: Callable[[int, float], None] = lambda *_: None,
    ) -> None:
        """`done` is told what needs no lease any more; `on_return` that the database is back from an outage.

        `on_parked` is told of which pipeline a transaction is parked, and when on the monotonic clock it is due.
        """
        self.counts: defaultdict[int, Counts] = defaultdict(Counts)
        self.names: dict[int, str] = {}  # of the pipelines, by id
        self.durations: deque[tuple[int, float]] = deque(maxlen=MOST_DURATIONS)
        self._worker, self._done, self._on_parked = worker, done, on_parked
        self._waiting: deque[Settlement] = deque()
        self._some = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._is_closing = self._is_hurried = False
        self._fault: Exception | None = None
        self._in_hand = 0
        self._unanswered: set[int] = set()  # leases whose outcome was sent, and so may be written
        self._portion = Portion(MOST_AT_ONCE)
        self._retry = DatabaseRetry("settle", on_return=on_return)
        self.is_connected = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ergon-completer", daemon=True)
        self._thread.start()

    @property
    def settled(self) -> int:
        return sum(counts.settled for counts in list(self.counts.values()))

    @property
    def is_cut_off(self) -> bool:
        """Whether the database does not take outcomes at present."""
        return self._retry.is_out

    @property
    def is_behind(self) -> bool:
        """Whether so many outcomes wait that slots are to wait, too."""
        waiting = len(self._waiting)
        return waiting >= PLENTY and self._fault is None and (waiting >= MOST_WAITING or not self.is_cut_off)

    @property
    def is_flushing(self) -> bool:
        """Whether somebody waits until all outcomes are written."""
        return self._is_hurried

    def put(self, settlement: Settlement) -> None:
        """Take an outcome, once there is room for it."""
        while self.is_behind:
            time.sleep(LINGER)
        self.take(settlement)

    async def put_async(self, settlement: Settlement, turn: asyncio.Lock) -> None:
        """The same for an event loop, which goes on meanwhile; only who has the turn looks whether there is room."""
        if self.is_behind or turn.locked():
            async with turn:
                while self.is_behind:  # noqa: ASYNC110 (another thread makes room)
                    await asyncio.sleep(LINGER)
        self.take(settlement)

    def take(self, settlement: Settlement) -> None:
        self.refuse_after_fault()
        if self._idle.is_set():
            self._idle.clear()
        self._waiting.append(settlement)
        if not self._some.is_set():
            self._some.set()

    def flush(self, limit: float) -> None:
        """Return when everything taken so far is written, or say that it could not be."""
        self._is_hurried = True
        self._some.set()
        try:
            is_written = self._idle.wait(limit)
        finally:
            self._is_hurried = False
        self.refuse_after_fault()
        if not is_written:
            count = len(self._waiting) + self._in_hand
            msg = f"{count:,} outcomes were not written within {limit:g} s; their transactions will run again"
            raise ConnectorError(msg)

    def refuse_after_fault(self) -> None:
        """Raise if something other than an outage has ended the thread: nothing more can be written."""
        if self._fault is not None:
            msg = f"outcomes cannot be written: {headline(self._fault)}"
            raise ConnectorError(msg) from self._fault

    def close(self) -> None:
        self._is_closing = True
        self._retry.give_up()
        self._some.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        try:
            self._retry.wait_out(transactions.make_ready)
            self.is_connected.set()
            self._work()
        except Exception as error:  # noqa: BLE001 (told to whoever brings the next outcome)
            self._fault = error
            self._idle.set()
        close_connection()

    def _work(self) -> None:
        while not self._is_closing:
            if not self._some.wait(settings().heartbeat):
                # Whether outcomes can be written is known before there are any: see `is_cut_off`.
                self._retry.wait_out(_ask_anything)
                continue
            self._some.clear()
            while self._waiting and not self._is_closing:
                if len(self._waiting) < ENOUGH and not self._is_hurried:
                    time.sleep(LINGER)
                self._settle([self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))])
            self._idle.set()
            if self._waiting:  # one came between the last look and now
                self._idle.clear()
                self._some.set()

    def _settle(self, batch: list[Settlement]) -> None:
        self._in_hand = len(batch)
        try:
            self._prepare([one.transaction.lease for one in batch if not one.transaction.lease.is_lost])
            stale = self._retry.wait_out(lambda: self._write_some(batch))
        except (DataError, IntegrityError, ValueError, TypeError, ArithmeticError) as error:
            self._settle_singly(batch, error)
            return
        self._in_hand = 0
        if stale is None:
            return
        self._unanswered.difference_update(one.transaction.lease.id for one in batch)
        lost, now = {transaction.lease.id for transaction in stale}, time.monotonic()
        for leased, outcome in batch:
            counts = self.counts[leased.lease.pipeline_id]
            if leased.lease.attempts and not isinstance(outcome, Later) and leased.lease.id not in lost:
                self.durations.append((leased.lease.pipeline_id, now - leased.lease.attempts[0][0].started))
            if leased.lease.id in lost:
                counts.stale += 1
            elif isinstance(outcome, Success):
                counts.succeeded += 1
            elif leased.lease.is_cancelled:
                counts.cancelled += 1
            elif isinstance(outcome, Later):
                counts.postponed += 1
                if outcome.is_parked:  # by now it is written: it will be due by then
                    self._on_parked(leased.lease.pipeline_id, time.monotonic() + outcome.seconds)
            else:
                counts.failed += 1
                if isinstance(outcome, Failure):
                    pipeline = self.names.get(leased.lease.pipeline_id, "")
                    log_failure(pipeline, leased.id, outcome, leased.lease.tried)
        for leased in stale:
            telemetry.stale.add(1)
            log.warning("outcome_came_after_its_lease", transaction=leased.id)
        self._done([one.transaction for one in batch])

    def _prepare(self, leases: list[Lease]) -> None:
        """Do before the time limit what takes long; of very many attempts, most are written before the outcome."""
        transactions.prepare(leases, is_ending=True)
        for lease in leases:
            note = partial(transactions.note, [lease], worker=self._worker, is_ending=True)
            is_held: int | None = 1
            while is_held and len(lease.attempts) - lease.noted > NOTED_AT_ONCE:
                is_held = self._retry.wait_out(note)

    def _write_some(self, batch: list[Settlement]) -> list[LeasedTransaction]:
        """Write outcomes; those whose lease was lost. An earlier try may have written some, though nobody heard of it.

        After a try that took too long only the first are written, and the others wait again.
        """
        size = self._portion.of(len(batch))
        if size < len(batch):
            self._waiting.extendleft(reversed(batch[size:]))
            del batch[size:]
            self._in_hand = size
        repeated = self._unanswered.copy()
        self._unanswered.update(one.transaction.lease.id for one in batch if not one.transaction.lease.is_lost)
        with self._retry.fitting(self._portion, size):
            stale = self._write(batch)
            lost = {one.lease.id for one in stale}
            unsure = [one for one in batch if one.transaction.lease.id in lost & repeated]
            written = transactions.find_written(unsure) if unsure else set()
        return [one for one in stale if one.lease.id not in written]

    def _write(self, batch: list[Settlement]) -> list[LeasedTransaction]:
        """Ends, and beginnings of a wait; written twice, the second time changes nothing."""
        lost = [one.transaction for one in batch if one.transaction.lease.is_lost]
        if lost:  # the same worker may have claimed it anew since, with the same token
            batch = [one for one in batch if not one.transaction.lease.is_lost]
        later = [one for one in batch if isinstance(one.outcome, Later)]
        if not later:
            return lost + transactions.settle(batch, worker=self._worker, is_own=True)
        ended = [one for one in batch if not isinstance(one.outcome, Later)]
        with short_transaction():
            transactions.lock([one.transaction.lease for one in batch])
            stale = transactions.settle(ended, worker=self._worker)
            return lost + stale + transactions.postpone(later, worker=self._worker)

    def _settle_singly(self, batch: list[Settlement], error: Exception) -> None:
        """Something in the batch cannot be written: find it, and write down that."""
        if len(batch) > 1:
            for settlement in batch:
                self._settle([settlement])
            return
        leased, outcome = batch[0]
        if isinstance(outcome, Failure) and isinstance(outcome.error, OutcomeNotWrittenError):
            # Its lease lapses, and it is run again, until it counts as poison and has its dead letter.
            log.error("outcome_lost", transaction=leased.id, error=error_text(error))
            self._unanswered.discard(leased.lease.id)
            self._done([leased])
            return
        failure = OutcomeNotWrittenError(
            f"its outcome could not be written: {error_text(error)}", transaction_id=leased.id
        )
        failure.__cause__ = error
        leased.lease.attempts = []  # not cleared: the heart may be busy with those
        self._settle([Settlement(leased, Failure(failure))])


def _ask_anything() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def log_failure(pipeline: str, transaction_id: str, failure: Failure, attempts: Sequence[AttemptRecord]) -> None:
    """Log a transaction that has failed for good: one line to find it by, its dead letter has the rest."""
    told = failures.summary(failure, attempts)
    error = " ".join(f"{told['type']}: {told['message']}".split())
    worker_log.error(
        "transaction_failed",
        pipeline=pipeline,
        transaction=failures.storable(transaction_id),
        step=told["step"],
        category=told["category"],
        attempts=max((one.number for one in attempts if one.stage.value == told["step"]), default=0),
        error=error if len(error) <= LONGEST_ERROR else f"{error[:LONGEST_ERROR]}…",
    )
