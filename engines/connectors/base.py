"""The methods of a connector. Only `fetch` and `dispatch` are required, each where it is used."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from engines.transaction import Transaction


@runtime_checkable
class Connector(Protocol):
    """For threaded tasks. May also have `acknowledge(transaction, outcome)`, `release(transactions)` and `count()`.

    A connector that gathers outcomes has `flush()`: what was acknowledged is safe when it returns. `note(transaction,
    attempt)` hears of every attempt. `is_prefetching = True` asks the engine to fetch the next batch before the current
    one has drained.

    What else it has counts only if `ergon_offers` names it. `begin(transaction)` is asked before every handler whether
    it may start. `is_lost(transaction)` says whether somebody else has it by now, and `on_lost(callback)` is told what
    to call with those that were lost. `on_arrival(callback)` is told what to call when there may be work, so that a
    streaming loop need not wait out its pause. `policy_in_force()` gives the policy of the batch that was fetched last
    and the name of its version. `drain()` says that the first empty batch will end the loop: a connector that has to
    wait before it can tell whether there is work waits then. `starts_left()` says how many more it may give (None: any
    number); the loop ends when it is 0.
    """

    def fetch_transactions(self, batch_size: int, **extra: Any) -> Sequence[Transaction]: ...

    def dispatch_transactions(self, transactions: Sequence[Transaction]) -> Any: ...


@runtime_checkable
class AsyncConnector(Protocol):
    """For async tasks. May also have `acknowledge_async`, `release_async`, `count_async` and `flush_async`.

    `note`, `on_arrival` and `policy_in_force` are as for threads.
    """

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> Sequence[Transaction]: ...

    async def dispatch_transactions_async(self, transactions: Sequence[Transaction]) -> Any: ...
