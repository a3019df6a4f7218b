"""Pipelines whose transactions come from another source than the database."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import structlog

from engines import dead_letters, policies, telemetry
from engines.connectors.base import Connector, OnLost, transactions_in
from engines.connectors.pipeline import Adjust, PipelineConnector
from engines.core import failures
from engines.core.attempt import AttemptRecord
from engines.core.errors import ConnectorError
from engines.core.outcome import Failure, Outcome, Success
from engines.dead_letters import NOT_REPLAYABLE, DeadLetterDraft
from engines.models import Pipeline
from engines.tasks.transaction import Transaction
from engines.transactions.payloads import PayloadError, decode, encode, encode_result
from engines.worker.completer import log_failure
from engines.worker.database_retry import DatabaseRetry
from engines.worker.heartbeat import Heartbeat
from engines.worker.shared_limit import SharedLimit

log = structlog.get_logger("ergon.worker")

LARGEST_COPY = 16 * 1024 * 1024


def _of_inner(name: str) -> Any:
    """A method that the inner connector carries out."""
    return lambda self, *given: getattr(self._inner, name)(*given)


class ExternalConnector(PipelineConnector):
    """Adds to a registered connector what the database keeps of a pipeline: dead letters, counts, policy, pauses."""

    def __init__(
        self,
        pipeline: Pipeline,
        inner: Connector,
        heartbeat: Heartbeat,
        adjust: Adjust,
        shared: SharedLimit | None = None,
    ) -> None:
        super().__init__(pipeline, heartbeat, adjust, shared)
        self._inner = inner
        self.is_prefetching, self.is_postponing = inner.is_prefetching, inner.is_postponing
        self._tried: dict[str, list[tuple[AttemptRecord, str | None]]] = {}
        self._begun: set[str] = set()
        self._retry = DatabaseRetry("store a dead letter", borrow=heartbeat.connections.borrow)
        if inner.reports_failures:
            inner.on_dead = self._bury_one_told_of
        self._paused = threading.Event()
        self._look_at_pipeline()
        heartbeat.at_every_beat(self._look_at_pipeline)
        heartbeat.elsewhere.append(lambda: len(self._begun))

    dispatch_transactions = _of_inner("dispatch_transactions")
    dispatch_transactions_async = _of_inner("dispatch_transactions_async")
    is_lost = _of_inner("is_lost")
    on_arrival = _of_inner("on_arrival")
    resumed = _of_inner("resumed")
    due_in = _of_inner("due_in")
    count = _of_inner("count")
    count_async = _of_inner("count_async")
    flush = _of_inner("flush")
    flush_async = _of_inner("flush_async")
    give_up = _of_inner("give_up")
    close = _of_inner("close")

    @property
    def given_back(self) -> int:  # type: ignore[override]
        return self._inner.given_back

    def _fetch(self, size: int, extra: dict[str, Any]) -> Sequence[Transaction]:
        """Nothing while the pipeline is paused; what comes to a fetch that waited since before is put back."""
        if self._paused.is_set():
            return []
        batch = self._inner.fetch_transactions(size, **extra)
        if self._paused.is_set() and batch:
            self._inner.release(transactions_in(batch))
            return []
        return batch

    async def _fetch_async(self, size: int, extra: dict[str, Any]) -> Sequence[Transaction]:
        if self._paused.is_set():
            return []
        batch = await self._inner.fetch_transactions_async(size, **extra)
        if self._paused.is_set() and batch:
            await self._inner.release_async(transactions_in(batch))
            return []
        return batch

    def begin(self, transaction: Transaction) -> bool:
        return self._note_begin(transaction, is_ours=self._inner.begin(transaction))

    async def begin_async(self, transaction: Transaction) -> bool:
        return self._note_begin(transaction, is_ours=await self._inner.begin_async(transaction))

    def _note_begin(self, transaction: Transaction, *, is_ours: bool) -> bool:
        if is_ours:
            self._begun.add(transaction.id)
        else:
            self._forget([transaction])
        return is_ours

    def on_lost(self, callback: OnLost | None) -> None:
        """Of what is lost, nobody brings an outcome or gives it back."""
        if callback is None:
            self._inner.on_lost(None)
            return

        def lose(lost: Sequence[Transaction]) -> None:
            self._forget(lost)
            callback(lost)

        self._inner.on_lost(lose)

    def note(self, transaction: Transaction, attempt: AttemptRecord) -> None:
        self._inner.note(transaction, attempt)
        trace_id = telemetry.current_trace_id() if self._is_tracing else None
        self._tried.setdefault(transaction.id, []).append((attempt.without_error(), trace_id))

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> None:
        """A failure is kept before the source may forget it; not if the source gave it to another worker."""
        if isinstance(outcome, Failure) and not self._inner.reports_failures:
            self._bury(transaction, outcome)
        is_taken = self._inner.acknowledge(transaction, outcome)
        self._count(transaction, outcome, is_stale=is_taken is False)

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> None:
        if isinstance(outcome, Failure) and not self._inner.reports_failures:
            await asyncio.to_thread(self._bury, transaction, outcome)
        is_taken = await self._inner.acknowledge_async(transaction, outcome)
        self._count(transaction, outcome, is_stale=is_taken is False)

    def release(self, transactions: Sequence[Transaction]) -> None:
        self._uncount(transactions)
        self._forget(transactions)
        self._inner.release(transactions)

    async def release_async(self, transactions: Sequence[Transaction]) -> None:
        self._uncount(transactions)
        self._forget(transactions)
        await self._inner.release_async(transactions)

    def let_lapse(self, transactions: Sequence[Transaction]) -> None:
        self._inner.let_lapse(transactions)

    def interrupt(self) -> None:
        self._retry.give_up()
        self._inner.interrupt()

    def _look_at_pipeline(self) -> None:
        if Pipeline.objects.filter(pk=self.pipeline.pk, paused_at__isnull=False).exists():
            self._paused.set()
        else:
            self._paused.clear()
        version, policy = policies.in_force(self.pipeline.policy_id)
        if str(version) != self._in_force[1]:
            self._set_policy(policy, str(version))

    def _count(self, transaction: Transaction, outcome: Outcome, *, is_stale: bool = False) -> None:
        self._forget([transaction])
        counts = self._heartbeat.completer.counts[self.pipeline.pk]
        if is_stale:
            counts.stale += 1
            hint = "another worker has received it meanwhile"
            log.warning("outcome_came_too_late", transaction=transaction.id, hint=hint)
            return
        if isinstance(outcome, Success):
            counts.succeeded += 1
        else:
            counts.failed += 1
        self._heartbeat.tally(self.pipeline.pk, is_success=isinstance(outcome, Success))

    def _forget(self, transactions: Sequence[Transaction]) -> None:
        for transaction in transactions:
            self._begun.discard(transaction.id)
            self._tried.pop(transaction.id, None)

    def _bury_one_told_of(self, transaction: Transaction, failure: Failure) -> None:
        is_refused = transaction.id not in self._begun  # at the fetch: nobody else counts it
        self._bury(transaction, failure)
        if is_refused:
            self._count(transaction, failure)

    def _bury(self, transaction: Transaction, failure: Failure) -> None:
        tried = self._tried.get(transaction.id, [])
        # With the fields that a replay needs besides the payload, because there is no transaction row.
        texts = {name: getattr(transaction, name) for name in ("correlation_id", "parent_id", "source")}
        origin = {name: text if text is None else failures.storable(str(text)) for name, text in texts.items()}
        payload, fault = _copy(transaction.payload, "payload")
        metadata, fault_of_metadata = _copy(dict(transaction.metadata), "metadata")
        details = {
            "policy_version": int(self._in_force[1]),
            "worker": self._heartbeat.worker.pk,
            "connector": self.pipeline.connector,
            **origin,
            "metadata": metadata or None,
            NOT_REPLAYABLE: "; ".join(filter(None, (fault, fault_of_metadata))) or None,
        }
        about = {"source": self.pipeline.name, "uid": failures.storable(transaction.id), "draft_id": uuid4()}
        draft = DeadLetterDraft.of_failure(failure, tried, details, payload=payload, **about)
        if self._retry.wait_out(lambda: dead_letters.record([draft])) is None:
            # It must not be acknowledged: whoever gave it gives it again.
            msg = f"the dead letter of {transaction.id!r} could not be stored before the process stopped"
            raise ConnectorError(msg)
        log_failure(self.pipeline.name, transaction.id, failure, [attempted for attempted, _ in tried])


def _copy(value: Any, what: str) -> tuple[Any, str]:
    """A value, or what a column takes of it for people to read; and why it is not the same."""
    try:
        encode(value, limit=LARGEST_COPY, what=what)
    except PayloadError as error:
        return decode(encode_result(value, limit=LARGEST_COPY)[0]), str(error)
    return value, ""
