"""Facts as transactions: reads a boundary as one of its consumers, and appends to boundaries."""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import structlog

from engines.connectors.outage import Outage
from engines.core.errors import ConnectorError
from engines.core.outcome import Outcome
from engines.transaction import Transaction
from facts import ledger
from facts.core.errors import FactError
from facts.ledger import holding, reading

OFFSET = "offset"
# How often a drain looks whether another process has let go; one that has died holds on until its term is over.
LOOK = 0.5
PATIENCE = holding.TERM.total_seconds() + 4 * LOOK

log = structlog.get_logger("ergon.facts")


class FactsConnector:
    """Gives the facts after a consumer's cursor to a task, each once its turn has come, and appends what a task sends.

    A transaction has the message id as its id, `{"envelope": …, "fact": …}` as its payload and the offset in its
    metadata. A fact is confirmed once it and all before it have ended. One process reads as a consumer at a time;
    others get nothing until its term is over. What had not been confirmed then comes again.
    """

    is_prefetching = True
    ergon_offers = ("drain",)

    def __init__(self, consumer: str) -> None:
        self._name, self._holder = consumer, holding.new_holder()
        self._outage = Outage(f"read facts as {consumer}")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ergon-facts")
        self._lock = threading.Lock()
        self._out: set[int] = set()
        self._returned: dict[int, Transaction] = {}
        # Up to where facts have been given out, and confirmed; unknown until this process holds the consumer.
        self._position: int | None = None
        self._confirmed = -1
        self._hold_until = 0.0
        self._is_settling = self._is_draining = False
        # While another process reads: until when a drain waits for its turn.
        self._patient_until: float | None = None
        self._is_over, self._is_interrupted = threading.Event(), threading.Event()
        self._heart: threading.Thread | None = None
        self.given_back = 0

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

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> None:
        """It has ended, one way or the other; a failure has its dead letter."""
        with self._lock:
            self._out.discard(transaction.metadata[OFFSET])
            is_first, self._is_settling = not self._is_settling, True
        if is_first:  # the others go with it
            self._thread.submit(self._settle)

    def release(self, transactions: Sequence[Transaction]) -> None:
        with self._lock:
            self._returned |= {one.metadata[OFFSET]: one for one in transactions}
        self.given_back += len(transactions)

    def count(self) -> int:
        """How many wait."""
        return self._thread.submit(self._count).result()

    def flush(self) -> None:
        self._thread.submit(self._settle).result()

    def interrupt(self) -> None:
        self._is_interrupted.set()
        self._outage.give_up()

    def close(self) -> None:
        self._is_interrupted.set()
        self._is_over.set()
        self._thread.submit(self._leave)
        self._thread.shutdown(wait=False)

    async def fetch_transactions_async(self, batch_size: int, **_extra: Any) -> list[Transaction]:
        while True:
            batch = await self._fetch_async(batch_size)
            if batch or not self._awaits_its_turn():
                return batch
            await asyncio.sleep(LOOK)

    async def _fetch_async(self, batch_size: int) -> list[Transaction]:
        fetching = self._thread.submit(self._fetch, batch_size)
        try:
            return await asyncio.shield(asyncio.wrap_future(fetching))
        except asyncio.CancelledError:
            # The thread fetches on; what it still gets is given back.
            fetching.add_done_callback(self._return_late)
            raise

    async def dispatch_transactions_async(self, transactions: Sequence[Transaction]) -> int:
        return await asyncio.wrap_future(self._thread.submit(self._append, transactions))

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> None:
        self.acknowledge(transaction, outcome)

    async def release_async(self, transactions: Sequence[Transaction]) -> None:
        self.release(transactions)

    async def count_async(self) -> int:
        return await asyncio.wrap_future(self._thread.submit(self._count))

    async def flush_async(self) -> None:
        await asyncio.wrap_future(self._thread.submit(self._settle))

    def _fetch(self, size: int) -> list[Transaction]:
        try:
            batch = self._outage.wait_out(lambda: self._read(size)) or []
        except FactError as error:
            msg = f"the facts of {self._name!r} cannot be read: {error}"
            raise ConnectorError(msg) from error
        return batch

    def _read(self, size: int) -> list[Transaction]:
        consumer = reading.find_consumer(self._name)
        if not self._hold(consumer):
            return []
        with self._lock:
            # Somebody else may have read on while the term was over.
            if self._position is None or consumer.cursor > self._position:
                self._position = self._confirmed = consumer.cursor
            returned = [self._returned.pop(offset) for offset in sorted(self._returned)[:size]]
        if returned:
            return returned
        found = reading.after(consumer.boundary, self._position, size)
        with self._lock:
            self._out |= {offset for offset, _ in found}
            self._position = found[-1].offset if found else self._position
        return [self._transaction(offset, content) for offset, content in found]

    def _transaction(self, offset: int, content: str) -> Transaction:
        fact = json.loads(content)
        envelope = fact["envelope"]
        return Transaction(
            envelope["message_id"],
            fact,
            {OFFSET: offset},
            correlation_id=envelope.get("correlation_id"),
            parent_id=envelope.get("causation_id"),
            source=f"facts:{self._name}",
        )

    def _settle(self) -> None:
        """Confirm as far as everything has ended."""
        with self._lock:
            self._is_settling = False
            if self._position is None:
                return
            reached = min(self._out) - 1 if self._out else self._position
        if reached > self._confirmed:
            confirmed = self._outage.wait_out(lambda: ledger.confirm(self._name, reached))
            self._confirmed = self._confirmed if confirmed is None else confirmed

    def _append(self, transactions: Sequence[Transaction]) -> int:
        results = self._outage.wait_out(lambda: ledger.append_many([one.payload for one in transactions]))
        for transaction, result in zip(transactions, results or (), strict=bool(results)):
            if isinstance(result, FactError):
                msg = f"the fact {transaction.id!r} was refused: {result} ({result.code})"
                raise ConnectorError(msg) from result
        if results is None and transactions:
            msg = "the database did not answer before the end"
            raise ConnectorError(msg)
        return len(transactions)

    def _count(self) -> int:
        consumer = reading.find_consumer(self._name)
        at = consumer.cursor if self._position is None else self._position
        return max(0, reading.newest(consumer.boundary) - at)

    def _hold(self, consumer: Any) -> bool:
        """Asked of the database a few times in each term; who has lost the consumer begins anew at its cursor."""
        now = time.monotonic()
        if now < self._hold_until:
            return True
        is_held = holding.hold(consumer, self._holder)
        if not is_held:
            self._forget()
            self._patient_until = self._patient_until or now + PATIENCE
        else:
            self._patient_until = None
        self._hold_until = now + holding.TERM.total_seconds() / 3 if is_held else 0.0
        self._start_heart()
        return is_held

    def _awaits_its_turn(self) -> bool:
        if not self._is_draining or self._patient_until is None or self._is_interrupted.is_set():
            return False
        if time.monotonic() < self._patient_until:
            return True
        log.warning("consumer_is_held", consumer=self._name, hint="another process reads as it, and lives")
        return False

    def _forget(self) -> None:
        with self._lock:
            self._position = None
            self._out.clear()
            self._returned.clear()

    def _start_heart(self) -> None:
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat, name="ergon-facts-heart", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        """Handlers may take long, and nothing is fetched meanwhile."""
        while not self._is_over.wait(holding.TERM.total_seconds() / 5):
            if self._position is not None:
                with suppress(RuntimeError):  # closed a moment ago
                    self._thread.submit(self._keep_hold)

    def _keep_hold(self) -> None:
        self._outage.wait_out(lambda: self._hold(reading.find_consumer(self._name)))

    def _leave(self) -> None:
        self._settle()
        if self._hold_until:
            self._outage.wait_out(lambda: holding.let_go(reading.find_consumer(self._name), self._holder))
        self._outage.close_connection()

    def _return_late(self, fetched: "Future[list[Transaction]]") -> None:
        if not fetched.cancelled() and fetched.exception() is None:
            self.release(fetched.result())
