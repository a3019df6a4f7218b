"""Facts as transactions: reads a boundary as one of its consumers, and appends to boundaries."""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from engines.connectors.base import Connector, OnLost
from engines.connectors.freshness import Moment, age, now
from engines.core.errors import POISON, ConnectorError, PoisonError
from engines.core.outcome import Failure, Outcome
from engines.tasks.transaction import Transaction
from engines.worker.database_retry import DatabaseRetry
from engines.worker.thread_pool import ThreadPool
from ergon_site.access.database.calls import close_connection, short_transaction
from facts import ledger
from facts.core.errors import FactError
from facts.ledger import holding, reading

if TYPE_CHECKING:
    from concurrent.futures import Future

OFFSET = "offset"
# How often a drain looks whether another process has let go; one that has died holds on until its term is over.
LOOK = 0.5
# The part of a term in which nobody need be asked whether this process still reads.
TRUSTED = 0.9
# How many facts after its cursor a process that died may have begun.
SUSPECTS = 2000

log = structlog.get_logger("ergon.facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFact(Transaction):
    """A fact, and the hold on the consumer under which it was read."""

    hold: int = field(default=0, compare=False)


class Read(NamedTuple):
    """The next facts, how often which of them were started, and the identity of the last."""

    found: Sequence[reading.Found] = ()
    started: dict[str, int] = {}
    last: reading.Identity | None = None


class FactsConnector(Connector):
    """Gives the facts after a consumer's cursor to a task, each once its turn has come, and appends what a task sends.

    A transaction has the message id as its id, `{"envelope": …, "fact": …}` as its payload and the offset in its
    metadata. A fact is confirmed once it and all before it have ended. One process reads as a consumer at a time;
    others get nothing until its term is over. What had not been confirmed then comes again: a process that finds its
    term over begins nothing more of what it has read, and what comes of that counts for nothing.
    """

    is_prefetching = True
    reports_failures = True
    # The thread, and so the connection, of all fact connectors of this process.
    _thread = ThreadPool(1, thread_name_prefix="ergon-facts")

    def __init__(self, consumer: str, *, term: timedelta = holding.TERM) -> None:
        self._name, self._holder, self._term = consumer, holding.new_holder(), term
        self._retry = DatabaseRetry(f"read facts as {consumer}")
        self._lock = threading.Lock()
        self._out: dict[int, Transaction] = {}
        self._on_lost: OnLost | None = None
        self._returned: dict[int, Transaction] = {}
        # Up to where facts have been given out, and confirmed; unknown until this process holds the consumer.
        self._position: int | None = None
        self._confirmed = -1
        self._last: reading.Identity | None = None  # of the fact that was given out last
        self._held_at: Moment | None = None
        self._hold_number = 0  # each time that it had been lost, another
        # After a process has died: up to where the start of a fact is written down, and of which it was.
        self._suspect_until = -1
        self._noted: set[int] = set()
        self._is_settling = self._is_draining = False
        # While another process reads: until when a drain waits for its turn.
        self._patient_until: float | None = None
        self._is_over, self._is_interrupted = threading.Event(), threading.Event()
        self._heart: threading.Thread | None = None

    def drain(self) -> None:
        """The first empty batch will be the end, so while another process reads, wait: it may have died."""
        self._is_draining = True

    def fetch_transactions(self, batch_size: int, **_extra: Any) -> list[Transaction]:
        while True:
            batch = self._thread.submit(self._fetch, batch_size).result()
            if batch or not self._awaits_its_turn():
                return batch
            self._is_interrupted.wait(LOOK)

    def dispatch_transactions(self, transactions: Sequence[Transaction]) -> int:
        """Append them; they are kept when this returns. The payload of each is `{"envelope": …, "fact": …}`."""
        return self._thread.submit(self._append, transactions).result()

    def begin(self, transaction: Transaction) -> bool:
        """Whether a handler may start: not if another process may have read on from the cursor."""
        is_ours = self._is_of_this_hold(transaction) if self._is_known() else self.is_ours(transaction)
        offset = transaction.metadata[OFFSET]
        if is_ours and offset <= self._suspect_until and offset not in self._noted:
            self._thread.submit(self._note_start, offset).result()
        return is_ours

    def is_lost(self, transaction: Transaction) -> bool:
        return not self._is_of_this_hold(transaction)

    def on_lost(self, callback: OnLost | None) -> None:
        self._on_lost = callback

    def is_ours(self, transaction: Transaction) -> bool:
        """Whether this process still reads as the consumer: the database is asked unless it has said so just now.

        An answer that is too old when it comes says nothing, and is asked for again.
        """
        while self._is_of_this_hold(transaction):
            self._thread.submit(self._keep_hold).result()
            if self._is_known() or self._is_interrupted.is_set():
                break
        return self._is_known() and self._is_of_this_hold(transaction)

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> bool:
        """Record the end of a fact; a failure is reported first. False if another process reads by now."""
        is_known = self._is_known() and not isinstance(outcome, Failure)
        if not (self._is_of_this_hold(transaction) if is_known else self.is_ours(transaction)):
            return False
        if isinstance(outcome, Failure) and self.on_dead is not None:
            self.on_dead(transaction, outcome)
        with self._lock:
            self._out.pop(transaction.metadata[OFFSET], None)
            is_first, self._is_settling = not self._is_settling, True
        if is_first:  # the others go with it
            self._thread.submit(self._settle)
        return True

    def release(self, transactions: Sequence[Transaction]) -> None:
        ours = {one.metadata[OFFSET]: one for one in transactions if self._is_of_this_hold(one)}
        with self._lock:
            self._returned |= ours
        self.given_back += len(ours)

    def count(self) -> int | None:
        return self._thread.submit(self._retry.try_once, self._count).result()

    def flush(self) -> None:
        self._thread.submit(self._settle).result()

    def interrupt(self) -> None:
        self._is_interrupted.set()
        self._retry.give_up()

    def close(self) -> None:
        self.interrupt()
        self._is_over.set()
        self._thread.submit(self._leave)

    async def fetch_transactions_async(self, batch_size: int, **_extra: Any) -> list[Transaction]:
        while True:
            fetching = self._thread.submit(self._fetch, batch_size)
            try:
                batch = await asyncio.shield(asyncio.wrap_future(fetching))
            except asyncio.CancelledError:
                # The thread fetches on; what it still gets is given back.
                fetching.add_done_callback(self._return_late)
                raise
            if batch or not self._awaits_its_turn():
                return batch
            await asyncio.sleep(LOOK)

    async def begin_async(self, transaction: Transaction) -> bool:
        is_quick = self._is_known() and transaction.metadata[OFFSET] > self._suspect_until
        return self.begin(transaction) if is_quick else await asyncio.to_thread(self.begin, transaction)

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> bool:
        if self._is_known() and not isinstance(outcome, Failure):
            return self.acknowledge(transaction, outcome)
        return await asyncio.to_thread(self.acknowledge, transaction, outcome)

    async def release_async(self, transactions: Sequence[Transaction]) -> None:
        self.release(transactions)

    def _fetch(self, size: int) -> list[Transaction]:
        batch: list[Transaction] = []
        try:
            while not batch and (read := self._retry.wait_out(lambda: self._read(size))) is not None:
                batch = self._take_returned(size) or self._take(read)
                if not read.found:
                    break
            if not batch and self._noted:
                self._settle()  # the last dead letter is recorded
        except FactError as error:
            msg = f"the facts of {self._name!r} cannot be read: {error}"
            raise ConnectorError(msg) from error
        return batch

    def _read(self, size: int) -> Read:
        """The next facts: not taken yet, as a try that ends too late is repeated."""
        if not self._hold(reading.find_consumer(self._name)):
            return Read()
        # Only now: somebody else may have moved the cursor between a look at it and the hold.
        consumer = reading.find_consumer(self._name)
        self._note_set_back(consumer)
        with self._lock:
            # Somebody else may have read on while the term was over.
            if self._position is None or consumer.cursor > self._position:
                self._position = self._confirmed = consumer.cursor
        found = () if self._returned else reading.after(consumer.boundary, self._position, size)
        last = reading.identity(consumer.boundary, found[-1].offset) if found else None
        return Read(found, consumer.started or {}, last)

    def _take_returned(self, size: int) -> list[Transaction]:
        with self._lock:
            return [self._returned.pop(offset) for offset in sorted(self._returned)[:size]]

    def _take(self, read: Read) -> list[Transaction]:
        """What is to be run of the facts that were found; those that have ended their workers too often are buried."""
        batch = {offset: self._transaction(offset, content) for offset, content in read.found}
        # Where nobody keeps dead letters it runs once more.
        for offset, starts in read.started.items():
            if starts >= POISON and int(offset) in batch and self.on_dead is not None:
                self.on_dead(batch.pop(int(offset)), Failure(PoisonError(starts)))
                self._noted.add(int(offset))
        if read.found:
            with self._lock:
                self._out |= batch
                self._position, self._last = read.found[-1].offset, read.last
        return list(batch.values())

    def _note_start(self, offset: int) -> None:
        consumer = self._retry.wait_out(lambda: reading.find_consumer(self._name))
        if consumer is None:
            return
        # Not counted by the try: one that ends too late is repeated.
        starts = (consumer.started or {}).get(str(offset), 0) + 1
        self._retry.wait_out(lambda: holding.note_start(consumer, offset, starts))
        self._noted.add(offset)

    def _transaction(self, offset: int, content: str) -> Transaction:
        fact = json.loads(content)
        envelope = fact["envelope"]
        return ReadFact(
            envelope["message_id"],
            fact,
            {OFFSET: offset},
            correlation_id=envelope.get("correlation_id"),
            parent_id=envelope.get("causation_id"),
            source=f"facts:{self._name}",
            hold=self._hold_number,
        )

    def _settle(self) -> None:
        """Confirm as far as everything has ended."""
        with self._lock:
            self._is_settling = False
            if self._position is None:
                return
            reached = min(self._out) - 1 if self._out else self._position
        if reached > self._confirmed:
            confirmed = self._retry.wait_out(lambda: self._confirm(reached))
            self._confirmed = self._confirmed if confirmed is None else confirmed
        if self._noted and min(self._noted) <= self._confirmed:
            reached = self._confirmed
            self._retry.wait_out(lambda: holding.forget_starts(reading.find_consumer(self._name), reached))
            self._noted = {offset for offset in self._noted if offset > reached}

    def _confirm(self, reached: int) -> int:
        """Move the cursor if all that was read is still there; where it stands."""
        with short_transaction():  # a pooler may give statements of their own to different servers
            consumer = reading.find_consumer(self._name)
            # A try before this one may have noticed.
            if self._position is None or self._note_set_back(consumer):
                return consumer.cursor
            return ledger.confirm(self._name, reached)

    def _note_set_back(self, consumer: Any) -> bool:
        """Begin anew at the cursor if the database has lost what was confirmed or read, as at a failover.

        Others may have appended facts since, at the same offsets.
        """
        if self._position is None:
            return False
        is_set_back: bool = consumer.cursor < self._confirmed
        if not is_set_back and self._position > consumer.cursor:
            last = reading.identity(consumer.boundary, self._position)
            is_set_back = last is None or last != self._last
        if is_set_back:
            place = {"position": self._position, "cursor": consumer.cursor}
            hint = "the database has lost its newest facts or confirmations; reading again from the cursor"
            log.warning("consumer_set_back", consumer=self._name, **place, hint=hint)
            self._forget()
        return is_set_back

    def _append(self, transactions: Sequence[Transaction]) -> int:
        results = self._retry.wait_out(lambda: ledger.append_many([one.payload for one in transactions]))
        for transaction, result in zip(transactions, results or (), strict=bool(results)):
            if isinstance(result, FactError):
                msg = f"the fact {transaction.id!r} was refused: {result} ({result.code})"
                raise ConnectorError(msg) from result
        if results is None and transactions:
            msg = "the database did not answer before the process stopped"
            raise ConnectorError(msg)
        return len(transactions)

    def _count(self) -> int:
        consumer = reading.find_consumer(self._name)
        at = consumer.cursor if self._position is None else self._position
        return max(0, reading.newest(consumer.boundary) - at)

    def _hold(self, consumer: Any) -> bool:
        """Asked of the database a few times in each term; who has lost the consumer begins anew at its cursor."""
        if self._held_at is not None and age(self._held_at) < self._term.total_seconds() / 3:
            return True
        asked_at = now()
        is_kept = holding.keep(consumer, self._holder, term=self._term)
        if not is_kept:  # somebody else may have had it, and let go of it
            # Before it is taken: if the answer to that is lost, the next try finds it kept.
            self._forget()
            has_died = consumer.held_by not in {None, self._holder} or consumer.started is not None
            self._suspect_until = consumer.cursor + SUSPECTS if has_died else -1
        is_held = is_kept or holding.hold(consumer, self._holder, term=self._term)
        if is_held:
            self._patient_until = None
        else:
            patience = self._term.total_seconds() + 4 * LOOK
            self._patient_until = self._patient_until or time.monotonic() + patience
        self._held_at = asked_at if is_held else None
        if self._heart is None:
            heart = threading.Thread(target=self._beat, name="ergon-facts-heart", daemon=True)
            heart.start()
            self._heart = heart  # not before: if the machine has no more threads, the next hold tries again
        return is_held

    def _is_known(self) -> bool:
        held_at = self._held_at
        return held_at is not None and age(held_at) < self._term.total_seconds() * TRUSTED

    def _is_of_this_hold(self, transaction: Transaction) -> bool:
        return self._held_at is not None and getattr(transaction, "hold", None) == self._hold_number

    def _awaits_its_turn(self) -> bool:
        if not self._is_draining or self._patient_until is None or self._is_interrupted.is_set():
            return False
        if time.monotonic() < self._patient_until:
            return True
        log.warning("consumer_is_held", consumer=self._name, hint="another running process reads as this consumer")
        return False

    def _forget(self) -> None:
        with self._lock:
            self._hold_number += 1
            self._position = None
            lost = list(self._out.values())
            self._out.clear()
            self._returned.clear()
            self._noted.clear()
        if lost and self._on_lost is not None:
            self._on_lost(lost)

    def _beat(self) -> None:
        """Handlers may take long, and nothing is fetched meanwhile."""
        while not self._is_over.wait(self._term.total_seconds() / 5):
            if self._position is not None:
                with suppress(RuntimeError):  # closed a moment ago
                    self._thread.submit(self._keep_hold)

    def _keep_hold(self) -> None:
        """Ask for another term; a database that does not answer until somebody gives up has not said no."""
        self._retry.wait_out(lambda: self._hold(reading.find_consumer(self._name)))

    def _leave(self) -> None:
        self._settle()
        if self._held_at is not None:
            self._retry.wait_out(lambda: holding.let_go(reading.find_consumer(self._name), self._holder))
        close_connection()

    def _return_late(self, fetched: "Future[list[Transaction]]") -> None:
        if not fetched.cancelled() and fetched.exception() is None:
            self.release(fetched.result())
