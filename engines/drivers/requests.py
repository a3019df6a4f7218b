"""The requests of a loop and of its lifecycles to their driver: to call a function, and to wait."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from engines.connectors.base import Connector
from engines.core.loops import take
from engines.drivers.timeouts import Abandoned
from engines.tasks.transaction import Transaction

T = TypeVar("T")


class Ask(NamedTuple):
    """Call a function within a time limit. Answer: its result, or what it raised."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    seconds: float | None = None
    abandoned: Abandoned = Abandoned()  # counts the call while it runs on after the limit
    late: Callable[[Any], Any] | None = None  # takes a result that comes after the limit


class Raised(NamedTuple):
    """The error of a function that was asked for."""

    error: BaseException


class Wait(NamedTuple):
    """Wait in the loop, until a condition holds or for so many seconds. No answer is expected."""

    is_over: Callable[[], bool]
    seconds: float | None = None


class Pause(NamedTuple):
    """Wait in a lifecycle before its next attempt. Answer: whether the loop has ended meanwhile."""

    seconds: float


class LetEnd(NamedTuple):
    """Wait for a call that was cancelled at its limit, for so many seconds. No answer is expected."""

    call: Any
    seconds: float | None


# A function and its arguments, to be called without a limit. Most requests are that, and a plain pair costs least;
# `type` tells it from the others. Answer: as of `Ask`.
Pair: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
Requests: TypeAlias = Generator[Pair | Ask | Wait | Pause | LetEnd, Any, T]
Lifecycle: TypeAlias = Callable[[Transaction], Requests[Any]]
# A lifecycle in its slot, and its context: whoever goes on with the lifecycle goes on in the same context.
Performance: TypeAlias = tuple[Requests[Any], Context]


class Entry(NamedTuple):
    """A transaction on its way to a slot, with its lifecycle and the context of its batch, to be copied for it."""

    id: str
    transaction: Any
    lifecycle: Lifecycle
    context: Context


class Slots(Protocol):
    """The slots of a driver."""

    room: int
    is_room_awaited: bool

    @property
    def is_idle(self) -> bool: ...

    def add(self, entries: list[Any]) -> None: ...

    def fill(self) -> None: ...

    def resize(self) -> None: ...

    def withdraw(self) -> None: ...

    def aside(self) -> AbstractContextManager[bool]:
        """Lend the slot of a transaction that waits for a place elsewhere; False if it keeps it."""


class Driver(Protocol):
    """What a loop and its lifecycles need besides their requests."""

    slots: Slots

    def wake(self) -> None:
        """End the wait of the loop, if its condition holds by now."""

    def fetch(self, size: int) -> Any:
        """The next batch of the connector."""

    def release_late(self, transactions: list[Transaction]) -> Any:
        """Give transactions back that ended, or were fetched, when nobody waited for them any more."""


class Functions(NamedTuple):
    """What a driver calls besides handlers, mostly methods of its connector: plain ones, or coroutine functions."""

    begin: Callable[[Transaction], Any]
    acknowledge: Callable[[Transaction, Any], Any]
    release: Callable[[list[Transaction]], Any]
    depth: Callable[[], Any]
    flush: Callable[[], Any]
    take: Callable[[Iterator[Any], int], Any]  # the next transactions of a list


def functions_of(connector: Connector, *, is_async: bool) -> Functions:
    if is_async:
        return Functions(
            connector.begin_async,
            connector.acknowledge_async,
            connector.release_async,
            connector.count_async,
            connector.flush_async,
            _take_in_thread,
        )
    begin, acknowledge, release = connector.begin, connector.acknowledge, connector.release
    return Functions(begin, acknowledge, release, connector.count, connector.flush, take)


async def _take_in_thread(source: Iterator[Any], size: int) -> Any:
    """A source that waits must not keep the event loop."""
    return await asyncio.to_thread(take, source, size)
