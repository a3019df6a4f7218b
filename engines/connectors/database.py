"""The durable queue: transactions of a pipeline, leased, settled in batches, the same for all four engines."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError

from engines import pipelines, policies, telemetry, transactions
from engines.connectors.outage import Outage
from engines.connectors.station import OnLost, Station
from engines.core.attempt import AttemptRecord
from engines.core.outcome import Outcome
from engines.core.prefetch import Prefetch
from engines.models import Pipeline
from engines.reads import depth
from engines.transaction import Transaction
from engines.transactions import Draft, LeasedTransaction, Settlement

DEPTH_CAP = 10_000

T = TypeVar("T")
Adjust = Callable[[Any], Any]


class DatabaseConnector:
    """Gives a pipeline's transactions to a task, and keeps what came of them.

    Whichever thread asks borrows one of the few connections that all pipelines of the process share; outcomes go
    through the station's settler, which has one of its own.
    """

    is_prefetching = True
    is_postponing = True
    ergon_offers = ("begin", "is_lost", "on_lost", "spent", "on_arrival", "policy_in_force", "is_postponing")

    def __init__(self, pipeline: str | Pipeline, station: Station, adjust: Adjust = lambda policy: policy) -> None:
        self.pipeline = pipelines.find(pipeline) if isinstance(pipeline, str) else pipeline
        self._station, self._adjust = station, adjust
        station.settler.names[self.pipeline.pk] = self.pipeline.name
        self._pace = Prefetch()
        self._outage = Outage(f"claim from {self.pipeline.name}", borrow=station.connections.borrow)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ergon-claimer")  # for event loops, which must not wait
        self._is_tracing = telemetry.is_tracing()
        version, policy = policies.in_force(self.pipeline.policy_id)
        self._in_force: tuple[Any, str] = (adjust(policy), str(version))
        self.given_back = 0
        self._done = self._batches = 0

    def fetch_transactions(self, batch_size: int, **_extra: Any) -> list[LeasedTransaction]:
        wanted = self._pace.wanted(batch_size, done=self._done, now=time.monotonic())
        batch = self._outage.wait_out(lambda: self._lease(wanted)) or []
        return self._station.hold(batch)

    def dispatch_transactions(self, given: Sequence[Transaction]) -> int:
        with self._station.connections.borrow():
            try:
                return len(transactions.submit_many(self.pipeline.name, map(_draft, given)))
            except (DatabaseError, InterfaceError):
                self._outage.close_connection()  # others are to borrow one that works
                raise

    def begin(self, transaction: LeasedTransaction) -> bool:
        """Whether a handler may start: the lease is ours by our own clock, or else by the word of the database."""
        lease = transaction.lease
        if lease.is_confirmed and (lease.is_begun or lease.rescues == 0):
            return True
        return bool(self._outage.wait_out(lambda: transactions.begin(lease) and self._station.confirm(lease)))

    def is_lost(self, transaction: LeasedTransaction) -> bool:
        return transaction.lease.is_lost

    def on_lost(self, callback: OnLost | None) -> None:
        self._station.on_lost(self.pipeline.pk, callback)

    def acknowledge(self, transaction: LeasedTransaction, outcome: Outcome) -> None:
        self._done += 1  # about: one that two threads count at once is no matter to the pace
        transaction.lease.is_settling = True
        self._station.settler.put(Settlement(transaction, outcome))

    def release(self, batch: Sequence[LeasedTransaction]) -> None:
        leases = [one.lease for one in batch if not one.lease.is_lost]
        for lease in leases:
            lease.is_settling = True
        released = self._outage.wait_out(lambda: transactions.release(leases))
        if released is not None:
            self._station.drop(batch)
            self.given_back += released

    def count(self) -> int:
        return self._outage.try_once(lambda: depth.count(self.pipeline.pk, cap=DEPTH_CAP)) or 0

    def flush(self) -> None:
        self._station.flush()

    def note(self, transaction: LeasedTransaction, attempted: AttemptRecord) -> None:
        trace_id = telemetry.current_trace_id() if self._is_tracing else None
        transaction.lease.attempts.append((attempted, trace_id))

    def spent(self, transaction: LeasedTransaction) -> int:
        return transaction.lease.spent

    def on_arrival(self, callback: Callable[[], None] | None) -> None:
        if self._station.arrivals is not None:
            self._station.arrivals.subscribe(self.pipeline.pk, callback)

    def policy_in_force(self) -> tuple[Any, str]:
        """The policy of the batch that was claimed last, and the version that it comes from."""
        return self._in_force

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> list[LeasedTransaction]:
        return await self._awaited(self._thread.submit(self.fetch_transactions, batch_size))

    async def dispatch_transactions_async(self, given: Sequence[Transaction]) -> int:
        return await self._awaited(self._thread.submit(self.dispatch_transactions, given))

    async def begin_async(self, transaction: LeasedTransaction) -> bool:
        lease = transaction.lease
        if lease.is_confirmed and (lease.is_begun or lease.rescues == 0):
            return True
        return await self._awaited(self._thread.submit(self.begin, transaction))

    async def acknowledge_async(self, transaction: LeasedTransaction, outcome: Outcome) -> None:
        self._done += 1
        transaction.lease.is_settling = True
        settler, settlement = self._station.settler, Settlement(transaction, outcome)
        if settler.is_full:
            await asyncio.to_thread(settler.put, settlement)
        else:
            settler.put(settlement)

    async def release_async(self, batch: Sequence[LeasedTransaction]) -> None:
        await self._awaited(self._thread.submit(self.release, batch))

    async def count_async(self) -> int:
        return await self._awaited(self._thread.submit(self.count))

    async def flush_async(self) -> None:
        await asyncio.to_thread(self._station.flush)

    def interrupt(self) -> None:
        """Wait no longer for a database that does not answer."""
        self._outage.give_up()

    def close(self) -> None:
        self._station.let_lapse(self.pipeline.pk)
        self._thread.shutdown(wait=False)

    def _lease(self, count: int) -> list[LeasedTransaction]:
        self._station.require_connections()
        every = self._in_force[0].loop.batch.oldest_first_every
        is_oldest_first = every is not None and (self._batches + 1) % every == 0
        batch = transactions.claim(
            self.pipeline.pk, count, self._station.worker.pk, is_own=True, is_oldest_first=is_oldest_first
        )
        self._batches += bool(batch)
        version = batch[0].lease.policy_version if batch else None
        if version is not None and str(version) != self._in_force[1]:
            self._in_force = (self._adjust(policies.of_version(version)), str(version))
        return batch

    async def _awaited(self, future: "Future[T]") -> T:
        # Cancelled in mid-claim, the claim goes on: what it brings is given back.
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.add_done_callback(self._give_back)
            raise

    def _give_back(self, future: "Future[Any]") -> None:
        if future.exception() is None and isinstance(future.result(), list) and future.result():
            self._thread.submit(self.release, future.result())


class ClaimedBatch(Sequence[LeasedTransaction]):
    """A batch for a producer, which is told where its outcomes go."""

    is_postponing = True
    ergon_offers = ("begin", "is_lost", "on_lost", "spent", "policy_version", "is_postponing")

    def __init__(self, batch: Sequence[LeasedTransaction], connector: DatabaseConnector) -> None:
        self._batch = batch
        _, self.policy_version = connector.policy_in_force()
        for name in (
            "begin",
            "is_lost",
            "on_lost",
            "acknowledge",
            "release",
            "note",
            "spent",
            "begin_async",
            "acknowledge_async",
            "release_async",
        ):
            setattr(self, name, getattr(connector, name))

    def __getitem__(self, index: Any) -> Any:
        return self._batch[index]

    def __len__(self) -> int:
        return len(self._batch)


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
