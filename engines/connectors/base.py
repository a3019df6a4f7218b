"""What a source or sink of transactions offers. Only `fetch` and `dispatch` are required, each where it is used."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from engines.transaction import Transaction


@runtime_checkable
class Connector(Protocol):
    """For threaded tasks. May also have `acknowledge(transaction, outcome)`, `release(transactions)` and `count()`.

    `is_prefetching = True` asks the engine to fetch the next batch before the current one has drained.
    """

    def fetch_transactions(self, batch_size: int, **extra: Any) -> Sequence[Transaction]: ...

    def dispatch_transactions(self, transactions: Sequence[Transaction]) -> Any: ...


@runtime_checkable
class AsyncConnector(Protocol):
    """For async tasks. May also have `acknowledge_async`, `release_async` and `count_async`."""

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> Sequence[Transaction]: ...

    async def dispatch_transactions_async(self, transactions: Sequence[Transaction]) -> Any: ...
