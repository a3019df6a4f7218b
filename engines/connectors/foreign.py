"""A pipeline whose transactions come from elsewhere: its failures, counts and policy are kept here all the same."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from engines import dead_letters, policies
from engines.connectors.outage import Outage
from engines.connectors.station import Station
from engines.core import failures
from engines.core.journal import Attempted
from engines.core.outcome import Failure, Outcome, Success
from engines.dead_letters import Grave
from engines.models import Pipeline
from engines.payloads import PayloadError, encode
from engines.transaction import Transaction

LARGEST_COPY = 16 * 1024 * 1024


class ForeignConnector:
    """Stands before a registered connector; whatever that offers besides is offered as it is."""

    def __init__(self, pipeline: Pipeline, inner: Any, station: Station, adjust: Callable[[Any], Any]) -> None:
        self.pipeline = pipeline
        self._inner, self._station, self._adjust = inner, station, adjust
        self._tried: dict[str, list[Attempted]] = {}
        self._thread, self._outage = ThreadPoolExecutor(1, "ergon-foreign"), Outage("keep a dead letter")
        self._tells_of_the_dead = hasattr(inner, "on_dead")
        if self._tells_of_the_dead:
            inner.on_dead = self._bury
        version, policy = policies.in_force(pipeline.policy_id)
        self._in_force: tuple[Any, str] = (adjust(policy), str(version))
        station.at_every_beat(self._look_at_policy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def ergon_offers(self) -> tuple[str, ...]:
        return ("policy_in_force", *getattr(self._inner, "ergon_offers", ()))

    @property
    def given_back(self) -> int:
        return getattr(self._inner, "given_back", 0)

    def policy_in_force(self) -> tuple[Any, str]:
        return self._in_force

    def note(self, transaction: Transaction, attempted: Attempted) -> None:
        self._tried.setdefault(transaction.id, []).append(attempted)

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> None:
        """A failure is kept before whoever gave the transaction may forget it."""
        if isinstance(outcome, Failure) and not self._tells_of_the_dead:
            self._bury(transaction, outcome)
        if hasattr(self._inner, "acknowledge"):
            self._inner.acknowledge(transaction, outcome)
        self._count(transaction, outcome)

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> None:
        if isinstance(outcome, Failure) and not self._tells_of_the_dead:
            await asyncio.to_thread(self._bury, transaction, outcome)
        if hasattr(self._inner, "acknowledge_async"):
            await self._inner.acknowledge_async(transaction, outcome)
        self._count(transaction, outcome)

    def interrupt(self) -> None:
        self._outage.give_up()
        if hasattr(self._inner, "interrupt"):
            self._inner.interrupt()

    def close(self) -> None:
        self._thread.submit(self._outage.close_connection)
        self._thread.shutdown(wait=False)
        if hasattr(self._inner, "close"):
            self._inner.close()

    def _look_at_policy(self) -> None:
        version, policy = policies.in_force(self.pipeline.policy_id)
        if str(version) != self._in_force[1]:
            self._in_force = (self._adjust(policy), str(version))

    def _count(self, transaction: Transaction, outcome: Outcome) -> None:
        self._tried.pop(transaction.id, None)
        counts = self._station.settler.counts[self.pipeline.pk]
        if isinstance(outcome, Success):
            counts.succeeded += 1
        else:
            counts.failed += 1
        self._station.tally(self.pipeline.pk, is_success=isinstance(outcome, Success))

    def _bury(self, transaction: Transaction, failure: Failure) -> None:
        tried = self._tried.get(transaction.id, [])
        first = failure.origin or failure
        told = failures.summary(first, tried)
        details = {
            "attempts": len(tried),
            "policy_version": int(self._in_force[1]),
            "worker": self._station.worker.pk,
            "correlation_id": transaction.correlation_id,
            "connector": self.pipeline.connector,
        }
        grave = Grave(
            source=self.pipeline.name,
            uid=transaction.id,
            step=told["step"],
            category=told["category"],
            error_type=told["type"],
            message=told["message"],
            traceback=failures.traceback_of(first.error),
            payload=_copy(transaction.payload),
            details=details,
        )
        # Slots come and go; one thread keeps one connection for all of them.
        self._thread.submit(self._outage.wait_out, lambda: dead_letters.keep([grave])).result()


def _copy(payload: Any) -> Any:
    """The payload as far as a column takes it: what it refuses is told in words."""
    try:
        encode(payload, limit=LARGEST_COPY)
    except PayloadError as error:
        return {"not kept": str(error)}
    return payload
