"""One limit for several loops: a pipeline whose transactions come from elsewhere has one loop for those of its own."""

import asyncio
from collections.abc import Sequence
from threading import Lock
from typing import Any

from engines.drivers.slots import SharedSlots

LOOK_AGAIN = 0.02


class Allowance:
    """The transactions that the loops of one pipeline have started together, against a limit."""

    def __init__(self) -> None:
        # Whoever fetches under a limit fetches alone, as nobody knows beforehand how many will come.
        self.turn = Lock()
        self._counting = Lock()
        self._started = 0
        self.slots = SharedSlots()

    def left(self, limit: int | None) -> int | None:
        return None if limit is None else max(0, limit - self._started)

    def count(self, change: int) -> None:
        with self._counting:
            self._started += change


class Sharing:
    """One of a pipeline's connectors, which gives no more than the limit leaves to all of them."""

    def __init__(self, inner: Any, allowance: Allowance) -> None:
        self._inner, self._allowance = inner, allowance
        self.slots = allowance.slots.share()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def ergon_offers(self) -> tuple[str, ...]:
        return ("starts_left", "slots", *getattr(self._inner, "ergon_offers", ()))

    def starts_left(self) -> int | None:
        """The loop ends when this is 0."""
        return self._allowance.left(self._inner.policy_in_force()[0].loop.limit)

    def fetch_transactions(self, batch_size: int, **extra: Any) -> Sequence[Any]:
        if self.starts_left() is None:
            return self._counted(self._inner.fetch_transactions(batch_size, **extra))
        with self._allowance.turn:
            size = self._wanted(batch_size)
            return self._counted(self._inner.fetch_transactions(size, **extra)) if size else []

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> Sequence[Any]:
        if self.starts_left() is None:
            return self._counted(await self._inner.fetch_transactions_async(batch_size, **extra))
        while not self._allowance.turn.acquire(blocking=False):  # noqa: ASYNC110 (the other loop has its own thread)
            await asyncio.sleep(LOOK_AGAIN)
        try:
            size = self._wanted(batch_size)
            return self._counted(await self._inner.fetch_transactions_async(size, **extra)) if size else []
        finally:
            self._allowance.turn.release()

    def release(self, batch: Sequence[Any]) -> None:
        self._allowance.count(-len(batch))
        self._inner.release(batch)

    async def release_async(self, batch: Sequence[Any]) -> None:
        self._allowance.count(-len(batch))
        await self._inner.release_async(batch)

    def _wanted(self, size: int) -> int:
        left = self.starts_left()
        return size if left is None else min(size, left)

    def _counted(self, batch: Sequence[Any]) -> Sequence[Any]:
        """Only what has a length is counted: anything else is refused by the loop, in its own words."""
        if isinstance(batch, list | tuple):
            self._allowance.count(len(batch))
        return batch
