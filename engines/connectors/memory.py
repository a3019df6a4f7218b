"""Transactions in a list: for scripts, demos and tests."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

from engines.connectors.base import Connector
from engines.core.outcome import Outcome
from engines.tasks.transaction import Transaction


class MemoryConnector(Connector):
    """A queue in this process, for threaded and async tasks alike. What is acknowledged is in `outcomes`."""

    def __init__(self, transactions: Iterable[Transaction] = ()) -> None:
        self._lock = Lock()
        self._waiting = deque(transactions)
        self.outcomes: list[tuple[str, Outcome]] = []

    def fetch_transactions(self, batch_size: int, **_extra: Any) -> list[Transaction]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(batch_size, len(self._waiting)))]

    def dispatch_transactions(self, transactions: Sequence[Transaction]) -> int:
        with self._lock:
            self._waiting.extend(transactions)
        return len(transactions)

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> None:
        self.outcomes.append((transaction.id, outcome))

    def release(self, transactions: Sequence[Transaction]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(transactions))

    def count(self) -> int:
        return len(self._waiting)

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> list[Transaction]:
        return self.fetch_transactions(batch_size, **extra)

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> None:
        self.acknowledge(transaction, outcome)

    async def _call_async(self, method: Callable[..., Any], *given: Any) -> Any:
        return method(*given)
