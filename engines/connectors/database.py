"""The durable queue: transactions of a pipeline, leased, settled in batches, the same for all four engines."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError

from engines import pipelines, policies, telemetry, transactions
from engines.connectors.base import OnArrival, OnLost
from engines.connectors.pipeline import Adjust, PipelineConnector
from engines.core.attempt import AttemptRecord
from engines.core.errors import UnreachableError
from engines.core.lifecycle import Resumed
from engines.core.outcome import Later, Outcome
from engines.core.pacing import Prefetch
from engines.models import Pipeline
from engines.reads import depth
from engines.tasks.transaction import Transaction
from engines.transactions import Draft, LeasedTransaction, Settlement, attempt_rows
from engines.worker.database_retry import DatabaseRetry, Portion
from engines.worker.heartbeat import Heartbeat
from engines.worker.shared_limit import SharedLimit
from engines.worker.thread_pool import ThreadPool
from ergon_site.access.database.calls import close_connection

if TYPE_CHECKING:
    from concurrent.futures import Future

DEPTH_CAP = 10_000
# Where the machine has no more threads: when it is tried again, in seconds.
TRY_AGAIN = 0.5
# A fetch also reports the depth of the queue to metrics: so often at least, in seconds.
DEPTH_EVERY = 15.0


class DatabaseConnector(PipelineConnector):
    """Gives a pipeline's transactions to a task, and keeps what came of them.

    Whichever thread asks borrows one of the few connections that all pipelines of the process share; outcomes go
    through the heartbeat's completer, which has one of its own.
    """

    is_prefetching = True
    is_postponing = True

    def __init__(
        self,
        pipeline: str | Pipeline,
        heartbeat: Heartbeat,
        adjust: Adjust = lambda policy: policy,
        shared: SharedLimit | None = None,
    ) -> None:
        super().__init__(pipelines.find(pipeline) if isinstance(pipeline, str) else pipeline, heartbeat, adjust, shared)
        heartbeat.completer.names[self.pipeline.pk] = self.pipeline.name
        self._pace, self._portion = Prefetch(), Portion(sys.maxsize)
        self._retry = DatabaseRetry(f"claim from {self.pipeline.name}", borrow=heartbeat.connections.borrow)
        self._thread = ThreadPool(1, thread_name_prefix="ergon-claimer")  # for event loops, which must not wait
        self._turn = asyncio.Lock()
        self._done = self._batches = 0
        self._has_looked = self._is_look_shared = False

    def _fetch(self, size: int, _extra: dict[str, Any]) -> list[LeasedTransaction]:
        if self._shares_first_look():
            return []
        self._heartbeat.poller.end(self.pipeline.pk)
        wanted = self._pace.wanted(size, done=self._done, now=time.monotonic())
        batch: list[LeasedTransaction] = []
        self._retry.wait_out(lambda: self._lease(wanted, batch))
        return self._heartbeat.hold(batch)

    def _shares_first_look(self) -> bool:
        """Whether the poller looks first, for all pipelines of the process at once: most may have no work."""
        if not self._has_looked:
            is_streaming = getattr(self._in_force[0].loop, "streaming", False)
            self._has_looked = True
            self._is_look_shared = is_streaming and self._heartbeat.has_many_pipelines and self.starts_left() is None
            return self._is_look_shared
        return False

    def dispatch_transactions(self, given: Sequence[Transaction]) -> int:
        with self._heartbeat.connections.borrow():
            try:
                return len(transactions.submit_many(self.pipeline.name, map(_draft, given)))
            except (DatabaseError, InterfaceError):
                close_connection()  # others are to borrow one that works
                raise

    def is_begun(self, transaction: Transaction) -> bool:
        """Whether the lease is ours by our own clock."""
        lease = _leased(transaction).lease
        return lease.is_confirmed and (lease.is_begun or lease.rescues == 0)

    def begin(self, transaction: Transaction) -> bool:
        """Whether a handler may start, by the word of the database."""
        lease = _leased(transaction).lease
        return bool(self._retry.wait_out(lambda: transactions.begin(lease) and self._heartbeat.confirm(lease)))

    def is_lost(self, transaction: Transaction) -> bool:
        return _leased(transaction).lease.is_lost

    def is_cancelled(self, transaction: Transaction) -> bool:
        return _leased(transaction).lease.is_cancelled

    def on_lost(self, callback: OnLost | None) -> None:
        self._heartbeat.on_lost(self.pipeline.pk, callback)

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> None:
        self._heartbeat.completer.put(self._settlement(transaction, outcome))

    def _settlement(self, transaction: Transaction, outcome: Outcome) -> Settlement:
        leased = _leased(transaction)
        leased.lease.is_settling = True
        self._done += 1  # about: one that two threads count at once is no matter to the pace
        if isinstance(outcome, Later) and self._is_tracing:
            outcome = outcome._replace(trace=telemetry.current_trace())
        return Settlement(leased, outcome)

    def release(self, given: Sequence[Transaction]) -> None:
        batch = [_leased(one) for one in given]
        self._uncount(batch)
        leases = [one.lease for one in batch if not one.lease.is_lost]
        for lease in leases:
            lease.is_settling = True
        try:
            released = self._retry.wait_out(lambda: transactions.release(leases))
            if released is None:
                self._heartbeat.unreturned += len(leases)
                msg = f"the database does not answer: {len(leases):,} transactions run again when their leases expire"
                raise UnreachableError(msg)
            self.given_back += released
        finally:
            self._heartbeat.drop(batch)  # nobody here runs them any more: what was not taken back lapses

    def count(self) -> int:
        return self._retry.try_once(lambda: depth.count(self.pipeline.pk, cap=DEPTH_CAP)) or 0

    def flush(self) -> None:
        self._heartbeat.flush()

    def note(self, transaction: Transaction, attempt: AttemptRecord) -> None:
        trace_id = telemetry.current_trace_id() if self._is_tracing else None
        attempt_rows.add(_leased(transaction).lease, attempt, trace_id)

    def resumed(self, transaction: Transaction) -> Resumed:
        return _leased(transaction).lease.resumed

    def due_in(self) -> float | None:
        return self._heartbeat.poller.due_in(self.pipeline.pk)

    def on_arrival(self, callback: OnArrival | None) -> None:
        self._heartbeat.poller.subscribe(self.pipeline.pk, callback)

    def await_work(self, seconds: float) -> float | None:
        """One thread looks for all loops of the process; a producer's waits do not grow.

        Under a limit that is shared, others may use up what is left: nobody tells of that.
        """
        if self.starts_left() is not None:
            return seconds
        empty_queue = getattr(self._in_force[0].loop, "empty_queue", None)
        self._heartbeat.poller.expect(self.pipeline.pk, seconds, empty_queue, is_urgent=self._is_look_shared)
        self._is_look_shared = False
        return DEPTH_EVERY if telemetry.is_metering() else None

    async def _fetch_async(self, size: int, extra: dict[str, Any]) -> list[LeasedTransaction]:
        if self._shares_first_look():
            return []
        return await self._call_async(self._fetch, size, extra)  # type: ignore[no-any-return]

    async def begin_async(self, transaction: Transaction) -> bool:
        return await self._call_async(self.begin, transaction)  # type: ignore[no-any-return]

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> None:
        await self._heartbeat.completer.put_async(self._settlement(transaction, outcome), self._turn)

    async def flush_async(self) -> None:
        await asyncio.to_thread(self._heartbeat.flush)

    def interrupt(self) -> None:
        self._retry.give_up()

    def close(self) -> None:
        self._retry.give_up()
        self._heartbeat.let_lapse(self.pipeline.pk)
        self._thread.shutdown(wait=False)

    def _lease(self, count: int, batch: list[LeasedTransaction]) -> None:
        """Claim into a batch: of a try that ends too late, and is repeated, the claims stand."""
        if not batch:
            self._claim(count, batch)
        version = batch[0].lease.policy_version if batch else None
        if version is not None and str(version) != self._in_force[1]:
            self._set_policy(policies.of_version(version), str(version))

    def _claim(self, count: int, batch: list[LeasedTransaction]) -> None:
        self._heartbeat.require_connections()
        every = self._in_force[0].loop.batch.oldest_first_every
        is_oldest_first = every is not None and (self._batches + 1) % every == 0
        count = self._portion.of(count)
        with self._retry.fitting(self._portion, count):
            batch += transactions.claim(
                self.pipeline.pk, count, self._heartbeat.worker.pk, is_own=True, is_oldest_first=is_oldest_first
            )
        self._batches += bool(batch)

    async def _call_async(self, method: Callable[..., Any], *given: Any) -> Any:
        while (future := self._thread.submit_or_none(method, *given)) is None:  # noqa: ASYNC110 (nobody tells of one)
            await asyncio.sleep(TRY_AGAIN)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            # A claim goes on, maybe beyond `close`. The same thread then gives back what it brings.
            with suppress(RuntimeError):  # closed before: no claim is under way
                self._thread.submit(self._give_back, future)
            raise

    def _give_back(self, future: "Future[Any]") -> None:
        if future.exception() is None and isinstance(future.result(), list) and future.result():
            self.release(self._counted(future.result()))


def _leased(transaction: Transaction) -> LeasedTransaction:
    if not isinstance(transaction, LeasedTransaction):
        msg = f"the transaction {transaction.id!r} was not claimed from the database"
        raise TypeError(msg)
    return transaction


def _draft(transaction: Transaction) -> Draft:
    return Draft(
        transaction.payload,
        id=transaction.id,
        correlation_id=transaction.correlation_id,
        metadata=transaction.metadata,
        parent_id=transaction.parent_id,
        source=transaction.source,
        trace_context=transaction.trace_context or None,
    )
