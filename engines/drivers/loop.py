"""Performs the steps of a loop, for both drivers: what it needs of them is to call the connector, and to wait."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from engines.core.outcome import CUT, Failure, Outcome, Success
from engines.core.steps import Await, Call, Drain, Flush, Skip, Sleep, Start, Step, Steps, Stop, Take, Withdraw
from engines.drivers.run import Entry, Run
from engines.drivers.timeouts import LimitReached, is_request_to_end
from engines.tasks.transaction import Transaction

T = TypeVar("T")


class Ask(NamedTuple):
    """Call a function within a time limit. Answer: its result, or what it raised."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    seconds: float | None = None
    late: Callable[[Any], Any] | None = None  # takes a result that comes after the limit


class Raised(NamedTuple):
    """The error of a function that was asked for."""

    error: BaseException


class Wait(NamedTuple):
    """Wait until a condition holds, or for so many seconds. No answer is expected."""

    is_over: Callable[[], bool]
    seconds: float | None = None


Requests: TypeAlias = Generator[Ask | Wait, Any, T]


class Calls(NamedTuple):
    """The functions that a loop asks for, plain ones or coroutine functions."""

    fetch: Callable[[int], Any]
    release: Callable[[list[Transaction]], Any]
    release_late: Callable[[list[Transaction]], Any]
    depth: Callable[[], Any]
    flush: Callable[[], Any]
    take: Callable[[Iterator[Any], int], Any]
    entries: Callable[[list[Transaction]], list[Entry]]  # at once, whatever the driver


class Slots(Protocol):
    """The slots of a driver."""

    room: int
    is_room_awaited: bool

    @property
    def is_idle(self) -> bool: ...

    def add(self, entries: list[Entry]) -> None: ...

    def resize(self) -> None: ...

    def withdraw(self) -> None: ...


class Loop:
    """The steps of one loop, as requests to its driver."""

    def __init__(self, run: Run, slots: Slots, calls: Calls) -> None:
        self._run, self._slots, self._calls = run, slots, calls
        self.has_arrived = False  # there may be new transactions since the last fetch

    def run(self, steps: Steps[Stop | Failure]) -> Requests[Stop | Failure]:
        """Perform the steps of the core until it has no more."""
        observer, reply = self._run.observer, None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                ending: Stop | Failure = end.value
                return ending
            observer.before(step)
            reply = yield from self._perform(step)
            observer.after(step, reply)

    def _perform(self, step: Step) -> Requests[Any]:
        run, slots = self._run, self._slots
        match step:
            case Call():
                return (yield from self._fetch(step))
            case Take(source, size):
                try:
                    return (yield from _ask(Ask(self._calls.take, (source, size), run.left())))
                except LimitReached:
                    return run.interruption() or CUT
            case Start(transactions):
                slots.add(self._calls.entries(transactions))
            case Await(for_room):
                room = slots.room if for_room else -1
                slots.is_room_awaited = for_room
                yield Wait(lambda: run.is_stopping or slots.is_idle or run.backlog.waiting <= room, run.left())
                slots.is_room_awaited = False
                return run.interruption()
            case Sleep(seconds, is_for_work=is_for_work):
                yield Wait(lambda: run.is_stopping or (is_for_work and self.has_arrived), run.left(seconds))
                return run.interruption()
            case Flush():
                yield from self.flush()
            case Skip(how_many):
                run.tally.skipped += how_many
            case Withdraw():
                slots.withdraw()
            case Drain():
                yield Wait(lambda: slots.is_idle or run.is_cut, run.left_to_drain())
                if not slots.is_idle:
                    run.leave_running()
        return None

    def finish(self) -> Requests[None]:
        """Give back what has not started, and flush."""
        self._run.withdraw()
        yield from self.give_back(self._run.given_back)

    def give_back(self, transactions: list[Transaction]) -> Requests[None]:
        yield from self.release(transactions)
        yield from self.flush()

    def flush(self) -> Requests[None]:
        """Return once every outcome that was taken is safe, or the loop's time is up."""
        yield from self._tell("keep outcomes", self._calls.flush)

    def release(self, transactions: list[Transaction]) -> Requests[None]:
        if transactions:
            yield from self._tell("take transactions back", self._calls.release, transactions)

    def _tell(self, verb: str, function: Callable[..., Any], *arguments: Any) -> Requests[None]:
        """Call the connector within the loop's time; an error ends the loop and is raised at its end."""
        try:
            yield from _ask(Ask(function, arguments, self._run.left_to_give_back()))
        except BaseException as error:  # noqa: BLE001 (raised at the loop's end)
            self._run.blame_connector(error, verb)

    def _fetch(self, call: Call) -> Requests[Outcome]:
        run, fetch = self._run, self._calls.fetch
        if run.is_crowded:
            yield Wait(lambda: run.is_stopping or not run.is_crowded, run.left())
        if run.interruption() is not None:
            return CUT
        limit = run.fetch_limit(call)
        self.has_arrived = False
        try:
            batch = yield from _ask(Ask(fetch, (call.argument,), limit and limit.seconds, self._calls.release_late))
        except BaseException as error:
            if is_request_to_end(error):
                raise
            return run.fetch_failed(error, fetch, call, limit)
        if run.take_batch(batch):
            self._slots.resize()
        run.observer.fetched(batch, (yield from self._depth()))
        return Success(batch)

    def _depth(self) -> Requests[int | None]:
        if not self._run.observer.is_recording:
            return None
        try:
            depth: int | None = yield from _ask(Ask(self._calls.depth, (), self._run.left()))
        except BaseException as error:  # a number for a chart is not worth a batch
            if is_request_to_end(error):
                raise
            return None
        return depth


def _ask(ask: Ask) -> Requests[Any]:
    reply = yield ask
    if isinstance(reply, Raised):
        raise reply.error
    return reply
