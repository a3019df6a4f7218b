"""The base classes of connectors."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from engines.core.attempt import AttemptRecord
from engines.core.errors import ConnectorError, FetchException
from engines.core.lifecycle import ANEW, Resumed
from engines.core.outcome import Failure, Outcome
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.tasks.transaction import Transaction

OnArrival: TypeAlias = Callable[[], None]
OnLost: TypeAlias = Callable[[Sequence[Transaction]], None]
OnDead: TypeAlias = Callable[[Transaction, Failure], Any]
PolicyInForce: TypeAlias = tuple[ConsumerPolicy | ProducerPolicy, str]


class Slots(Protocol):
    """The slots of one loop, where several loops run the same pipeline. `wake` is called when one may be free."""

    wake: Callable[[], None]

    def take(self, concurrency: int, *, is_forced: bool = False) -> bool: ...

    def give(self) -> None: ...

    def decline(self) -> None: ...


class AsyncConnector:
    """A source or sink of transactions for async tasks. Override what yours can do: every method has a default.

    Derive from it if all your methods are coroutines, and from `Connector` otherwise.
    """

    # Whether the engine fetches the next batch before the current one has drained.
    is_prefetching = False
    # Whether an acknowledged outcome may be `Later`: the transaction comes back after that time.
    is_postponing = False
    # Slots that this loop shares with others of the same pipeline.
    slots: Slots | None = None
    # Whether it calls `on_dead` with each failed transaction before it lets go of it.
    reports_failures = False
    on_dead: OnDead | None = None
    # The number of transactions that were released, for the exit code of a worker.
    given_back = 0

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> Sequence[Transaction]:
        """The next transactions, at most `batch_size`; an empty list if there are none now.

        `extra` is `steps.fetch.extra` of the policy.
        """
        msg = f"{type(self).__name__} has no fetch_transactions_async: a consumer cannot fetch from it"
        raise NotImplementedError(msg)

    async def dispatch_transactions_async(self, transactions: Sequence[Transaction]) -> Any:
        """Send transactions. Called by tasks, never by the engine."""
        msg = f"{type(self).__name__} has no dispatch_transactions_async: a task cannot send to it"
        raise NotImplementedError(msg)

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> bool | None:
        """A transaction has ended. Return False if the outcome came too late and counts for nothing."""

    async def release_async(self, transactions: Sequence[Transaction]) -> None:
        """Take back transactions that were fetched and have not ended."""

    async def count_async(self) -> int | None:
        """The number of waiting transactions, for a metric; None if it is unknown."""
        return None

    async def flush_async(self) -> None:
        """Return when every acknowledged outcome is safe; raise if it cannot be made so."""

    async def begin_async(self, transaction: Transaction) -> bool:
        """Whether the next handler of a transaction may start; False if another worker may have the transaction."""
        return True

    def is_begun(self, transaction: Transaction) -> bool:
        """Whether the next handler may start without asking: then `begin` is not called."""
        return False

    def note(self, transaction: Transaction, attempt: AttemptRecord) -> None:
        """An attempt has ended. Called in the middle of the work: do no more than append."""

    def is_lost(self, transaction: Transaction) -> bool:
        """Whether another worker is known to have the transaction."""
        return False

    def is_cancelled(self, transaction: Transaction) -> bool:
        """Whether the end of the transaction was requested: no attempt follows, and only a success counts."""
        return False

    def let_lapse(self, transactions: Sequence[Transaction]) -> None:
        """Handlers of these run on, though the loop is over: do not give them back, but let their leases lapse."""

    def on_lost(self, callback: OnLost | None) -> None:
        """Call this with transactions that were lost to another worker, from any thread; None at the loop's end."""

    def on_arrival(self, callback: OnArrival | None) -> None:
        """Call this when there may be new transactions, from any thread; None at the loop's end."""

    def await_work(self, seconds: float) -> float | None:
        """A fetch has brought nothing: the time until the next one; None if only `on_arrival` ends the wait."""
        return seconds

    def policy_in_force(self) -> PolicyInForce | None:
        """The policy of the batch that was fetched last and the name of its version; None for the loop's own."""
        return None

    def resumed(self, transaction: Transaction) -> Resumed:
        """What a transaction has behind it that was put back until its next attempt."""
        return ANEW

    def due_in(self) -> float | None:
        """The seconds until the next transaction is due that was parked here; None if there is none."""
        return None

    def starts_left(self) -> int | None:
        """The number of transactions that may still start; the loop ends at 0. None if nothing limits them."""
        return None

    def drain(self) -> None:
        """The first empty batch will end the loop. Called before the first fetch of `consume --drain`."""

    def wait_out_outages(self) -> None:
        """Wait for a server that is away until `interrupt`, instead of failing. Called before the first fetch."""

    def interrupt(self) -> None:
        """A stop was requested: a fetch that waits returns."""

    def give_up(self) -> None:
        """The grace period is over: calls that still wait for a server fail."""

    def close(self) -> None:
        """The loop is over."""


class Connector(AsyncConnector):
    """A source or sink of transactions for threaded and for async tasks, with plain methods.

    A consumer needs `fetch_transactions`; tasks call `dispatch_transactions`. An async task calls the methods that end
    in `_async`, which run the plain ones in a thread; override them where your library has coroutines.
    """

    def fetch_transactions(self, batch_size: int, **extra: Any) -> Sequence[Transaction]:
        """The next transactions; see `fetch_transactions_async`."""
        msg = f"{type(self).__name__} has no fetch_transactions: a consumer cannot fetch from it"
        raise NotImplementedError(msg)

    def dispatch_transactions(self, transactions: Sequence[Transaction]) -> Any:
        """Send transactions. Called by tasks, never by the engine."""
        msg = f"{type(self).__name__} has no dispatch_transactions: a task cannot send to it"
        raise NotImplementedError(msg)

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> bool | None:
        """A transaction has ended; see `acknowledge_async`."""

    def release(self, transactions: Sequence[Transaction]) -> None:
        """Take back transactions that were fetched and have not ended."""

    def count(self) -> int | None:
        """The number of waiting transactions; None if it is unknown."""
        return None

    def flush(self) -> None:
        """Return when every acknowledged outcome is safe; raise if it cannot be made so."""

    def begin(self, transaction: Transaction) -> bool:
        """Whether the next handler of a transaction may start; see `begin_async`."""
        return True

    def wrap_handler(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """A handler of a threaded task with what must happen around every call, in the thread of the call."""
        return handler

    async def fetch_transactions_async(self, batch_size: int, **extra: Any) -> Sequence[Transaction]:
        fetching = asyncio.ensure_future(asyncio.to_thread(self.fetch_transactions, batch_size, **extra))
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            # The thread fetches on: what it still brings is given back.
            fetching.add_done_callback(self._release_late)
            raise

    async def dispatch_transactions_async(self, transactions: Sequence[Transaction]) -> Any:
        return await self._call_async(self.dispatch_transactions, transactions)

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> bool | None:
        return await self._call_async(self.acknowledge, transaction, outcome)  # type: ignore[no-any-return]

    async def release_async(self, transactions: Sequence[Transaction]) -> None:
        await self._call_async(self.release, transactions)

    async def count_async(self) -> int | None:
        return await self._call_async(self.count)  # type: ignore[no-any-return]

    async def flush_async(self) -> None:
        await self._call_async(self.flush)

    async def begin_async(self, transaction: Transaction) -> bool:
        return bool(await self._call_async(self.begin, transaction))

    async def _call_async(self, method: Callable[..., Any], *given: Any) -> Any:
        """A plain method for an async task: in a thread, unless it is a default, which returns at once."""
        default = vars(Connector).get(method.__name__)
        if default is not None and default is getattr(method, "__func__", None):
            return method(*given)
        return await asyncio.to_thread(method, *given)

    def _release_late(self, fetching: "asyncio.Future[Sequence[Transaction]]") -> None:
        if not fetching.cancelled() and fetching.exception() is None:
            asyncio.get_running_loop().run_in_executor(None, self.release, fetching.result())


PLAIN = [
    name
    for name, value in (vars(AsyncConnector) | vars(Connector)).items()
    if inspect.isfunction(value) and not name.endswith("_async")
]


def overrides(connector: AsyncConnector, *names: str) -> bool:
    """Whether a connector has more than the default of one of these methods: others need not be called at all."""
    defaults = vars(AsyncConnector) | vars(Connector)
    return any(
        getattr(type(connector), name, None) not in (defaults.get(name), vars(AsyncConnector).get(name))
        for name in names
    )


def require_connector(candidate: Any, *, is_async: bool) -> Connector:
    """Refuse what no loop could use, before anything is fetched."""
    kind = type(candidate).__name__
    if not isinstance(candidate, AsyncConnector):
        msg = f"{kind} is not a connector: derive it from engines.Connector"
        raise ConnectorError(msg)
    if not isinstance(candidate, Connector) and not is_async:
        msg = f"{kind} is an AsyncConnector, which a threaded task cannot await: derive it from engines.Connector"
        raise ConnectorError(msg)
    for name in PLAIN:
        if inspect.iscoroutinefunction(getattr(candidate, name, None)):
            hint = f": name it {name}_async" if f"{name}_async" in vars(AsyncConnector) else ""
            msg = f"{kind}.{name} is a coroutine function, which is never awaited{hint}"
            raise ConnectorError(msg)
    return cast("Connector", candidate)  # an async task calls only what both have


def collect(fetched: Any, size: int) -> tuple[list[Transaction], BaseException | None]:
    """The transactions that a connector returned, and what is wrong with them: then they are to be given back."""
    if not isinstance(fetched, Iterable) or isinstance(fetched, str | bytes | Mapping):
        hint = "; where there are none, return an empty list" if fetched is None else ""
        msg = f"the connector returned {type(fetched).__name__} where a list of transactions was expected{hint}"
        raise FetchException(msg)
    batch: list[Any] = []
    try:
        batch.extend(fetched)  # one by one, so that none is lost if it fails midway
        _check(batch, size)
    except BaseException as error:  # noqa: BLE001 (raised once the transactions are given back)
        return transactions_in(batch), error
    return batch, None


def _check(batch: list[Any], size: int) -> None:
    for item in batch:
        if not isinstance(item, Transaction):
            msg = f"the connector returned {type(item).__name__} in a list of transactions"
            raise FetchException(msg)
    if len(batch) > size:
        msg = f"the connector returned {len(batch)} transactions where at most {size} were asked for"
        raise FetchException(msg)


def transactions_in(batch: Iterable[Any]) -> list[Transaction]:
    """The transactions in a batch, so that none of them is lost with the rest."""
    return [item for item in batch if isinstance(item, Transaction)]
