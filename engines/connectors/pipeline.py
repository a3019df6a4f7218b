"""The base of the connectors that a worker makes for its pipelines."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.db import close_old_connections

from engines import policies, telemetry
from engines.connectors.base import Connector, PolicyInForce
from engines.models import Pipeline
from engines.tasks.transaction import Transaction
from engines.worker.heartbeat import Heartbeat
from engines.worker.shared_limit import SharedLimit

Adjust = Callable[[Any], Any]

LOOK_AGAIN = 0.02
CLOSE_OLD_EVERY = 1.0
_closed_old = threading.local()


class PipelineConnector(Connector):
    """Has the policy that is in force for its pipeline, and gives no more than a shared limit leaves to all loops."""

    def __init__(self, pipeline: Pipeline, heartbeat: Heartbeat, adjust: Adjust, shared: SharedLimit | None) -> None:
        self.pipeline, self._heartbeat, self._adjust = pipeline, heartbeat, adjust
        self._shared = shared
        self.slots = None if shared is None else shared.share()
        self._is_tracing = telemetry.is_tracing()
        version, policy = policies.in_force(pipeline.policy_id)
        self._set_policy(policy, str(version))

    def _set_policy(self, policy: Any, version: str) -> None:
        self._in_force: PolicyInForce = (self._adjust(policy), version)

    def policy_in_force(self) -> PolicyInForce:
        return self._in_force

    def starts_left(self) -> int | None:
        return None if self._shared is None else self._shared.left(self._in_force[0].loop.limit)

    def fetch_transactions(self, batch_size: int, **extra: Any) -> Sequence[Transaction]:
        if self._shared is None or self.starts_left() is None:
            return self._counted(self._fetch(batch_size, extra))
        with self._shared.turn:
            size = min(batch_size, self.starts_left() or 0)
            return self._counted(self._fetch(size, extra)) if size else []

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> Sequence[Transaction]:
        if self._shared is None or self.starts_left() is None:
            return self._counted(await self._fetch_async(batch_size, extra))
        while not self._shared.turn.acquire(blocking=False):  # noqa: ASYNC110 (the other loop has its own thread)
            await asyncio.sleep(LOOK_AGAIN)
        try:
            size = min(batch_size, self.starts_left() or 0)
            return self._counted(await self._fetch_async(size, extra)) if size else []
        finally:
            self._shared.turn.release()

    def _fetch(self, size: int, extra: dict[str, Any]) -> Sequence[Transaction]:
        raise NotImplementedError

    async def _fetch_async(self, size: int, extra: dict[str, Any]) -> Sequence[Transaction]:
        raise NotImplementedError

    def _counted(self, batch: Sequence[Transaction]) -> Sequence[Transaction]:
        """Only what has a length is counted: anything else is refused by the loop, in its own words."""
        if self._shared is not None and isinstance(batch, list | tuple):
            self._shared.count(len(batch))
        return batch

    def _uncount(self, batch: Sequence[Transaction]) -> None:
        """These have not started after all."""
        if self._shared is not None:
            self._shared.count(-len(batch))

    def wrap_handler(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """A handler's own database connections do not outlive their usefulness, in whatever thread it runs."""

        @wraps(handler)
        def handle(*args: Any) -> Any:
            try:
                value = handler(*args)
            except BaseException:
                close_old_connections()
                raise
            now = time.monotonic()
            if now - getattr(_closed_old, "at", 0.0) > CLOSE_OLD_EVERY:
                _closed_old.at = now
                close_old_connections()
            return value

        return handle
