"""Performs the steps of a loop, for both drivers: what it needs of them is to call the connector, and to wait."""

from collections.abc import Callable
from typing import Any

from engines.core.lifecycle import classify_fetch
from engines.core.outcome import CUT, Failure, Outcome, Success
from engines.core.steps import Await, Call, Drain, Flush, Skip, Sleep, Start, Step, Stop, Take, Withdraw
from engines.drivers.attempts import Deadlines
from engines.drivers.requests import Ask, Raised, Requests, Wait
from engines.drivers.run import Run
from engines.drivers.timeouts import LimitReached, is_request_to_end
from engines.tasks.transaction import Transaction


class Loop:
    """The steps of one loop, as requests to its driver."""

    def __init__(self, run: Run) -> None:
        self._run, self._driver, self._functions = run, run.driver, run.functions
        self.has_arrived = False  # there may be new transactions since the last fetch

    def run(self) -> Requests[Stop | Failure]:
        """Perform the steps of the core until it has no more."""
        run, observer, reply = self._run, self._run.observer, None
        steps = run.work.loop(lambda: run.work.policy)
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
        run, slots = self._run, self._driver.slots
        match step:
            case Call():
                return (yield from self._fetch(step))
            case Take(source, size):
                taken = yield Ask(self._functions.take, (source, size), run.left())
                if not isinstance(taken, Raised):
                    return taken
                if not isinstance(taken.error, LimitReached):
                    raise taken.error
                return run.interruption() or CUT
            case Start(transactions):
                slots.add(run.entries(transactions))
            case Await(for_room):
                room = slots.room if for_room else -1
                slots.is_room_awaited = for_room
                yield Wait(lambda: run.is_stopping or slots.is_idle or run.backlog.waiting <= room, run.left())
                slots.is_room_awaited = False
                return run.interruption()
            case Sleep(seconds, is_for_work=True, is_exact=is_exact):
                wait = run.work.connector.await_work(seconds)
                yield Wait(lambda: run.is_stopping or self.has_arrived, run.left(seconds if is_exact else wait))
                return run.interruption()
            case Sleep(seconds):
                yield Wait(lambda: run.is_stopping, run.left(seconds))
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
        yield from self._tell("keep outcomes", self._functions.flush)

    def release(self, transactions: list[Transaction]) -> Requests[None]:
        if transactions:
            yield from self._tell("take transactions back", self._functions.release, transactions)

    def _tell(self, verb: str, function: Callable[..., Any], *arguments: Any) -> Requests[None]:
        """Call the connector within the loop's time; an error ends the loop and is raised at its end."""
        reply = yield Ask(function, arguments, self._run.left_to_give_back())
        if isinstance(reply, Raised):
            self._run.blame_connector(reply.error, verb)

    def _fetch(self, call: Call) -> Requests[Outcome]:
        run, fetch = self._run, self._driver.fetch
        if run.is_crowded:
            yield Wait(lambda: run.is_stopping or not run.is_crowded, run.left())
        if run.interruption() is not None:
            return CUT
        deadlines = Deadlines(None, run.ends_at)
        limit = deadlines.limit(call.retry.timeout, is_bounded=False)
        self.has_arrived = False
        batch = yield Ask(fetch, (call.argument,), limit and limit.seconds, late=self._driver.release_late)
        if isinstance(batch, Raised):
            error = batch.error
            if is_request_to_end(error):
                raise error
            if limit is None or not isinstance(error, LimitReached) or error.function is not fetch:
                return classify_fetch(error)
            run.look_at_the_clock()
            return deadlines.reached(limit, call, None)
        if run.take_batch(batch):
            self._driver.slots.resize()
        run.observer.fetched(batch, (yield from self._depth()))
        return Success(batch)

    def _depth(self) -> Requests[int | None]:
        if not self._run.observer.is_recording:
            return None
        depth: int | Raised | None = yield Ask(self._functions.depth, (), self._run.left())
        if not isinstance(depth, Raised):
            return depth
        if is_request_to_end(depth.error):
            raise depth.error
        return None  # a number for a chart is not worth a batch
