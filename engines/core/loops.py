"""The rules for many transactions: what a consumer fetches and when it stops, how a producer works through a list."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from engines.core.lifecycle import run_stage
from engines.core.outcome import Cut, Failure, Success
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.core.steps import Await, Drain, Flush, Skip, Sleep, Stage, Start, Steps, Stop, Take, Withdraw


def consumption(
    in_force: Callable[[], ConsumerPolicy],
    *,
    is_prefetching: bool = False,
    starts_left: Callable[[], int | None] = lambda: None,
    due_in: Callable[[], float | None] = lambda: None,
) -> Steps[Stop | Failure]:
    """Fetch, hand out, wait; until there is no more, the limit is reached, somebody stops it, or a fetch fails.

    The policy is asked for anew at each batch, so that one that has changed counts from the next batch on. So is what
    others have left of a limit that is shared with them; None if it is not. And so is the time until the next of those
    that were parked here is due; None if there are none.
    """
    ending: Stop | Failure | None = None
    started = empty = 0
    is_open = False  # something may still run, or have its outcome on the way
    while ending is None:
        policy = in_force()
        size = _wanted(policy, started, starts_left())
        if size == 0:
            ending = Stop.LIMIT
            break
        match (yield from run_stage(Stage.FETCH, policy.steps.fetch.retry, size)):
            case Failure() as failure:
                ending = failure
            case Cut():
                ending = Stop.STOPPED
            case Success(transactions) if transactions:
                started, empty, is_open = started + len(transactions), 0, is_prefetching
                yield Start(transactions)
                ending = _stopped((yield Await(for_room=is_prefetching)))
            case Success() if policy.loop.streaming:
                seconds = policy.loop.empty_queue.delay(empty)
                due = due_in()
                ending = _stopped((yield Sleep(seconds if due is None else min(due, seconds), is_for_work=True)))
                empty += 1
            case Success() if is_open:  # what runs may ask for another attempt, or bring more work
                is_open = False
                ending = _stopped((yield Await(for_room=False)))
                if ending is None:
                    yield Flush()
            case Success() if (due := due_in()) is not None:  # what it has begun, it ends
                ending = _stopped((yield Sleep(due, is_for_work=True, is_exact=True)))
            case _:
                ending = Stop.EMPTY
    return (yield from _finish(ending))


def production(policy: ProducerPolicy, transactions: Iterable[Any], *, is_slow: bool = False) -> Steps[Stop | Failure]:
    """Batch after batch, each id once, until all are done, the limit is reached, or a stop.

    A source that may be slow (`is_slow`) is asked by the driver, which can give up on it.
    """
    limit, started = policy.loop.limit, 0
    seen: set[str] = set()
    source = iter(transactions)
    while True:
        taken = (yield Take(source, policy.loop.batch.size)) if is_slow else take(source, policy.loop.batch.size)
        if isinstance(taken, Cut):
            return (yield from _finish(Stop.STOPPED))
        batch, error = taken
        fresh = list(_unseen(batch, seen))
        yield Skip(len(batch) - len(fresh))
        if limit is not None:
            fresh = fresh[: limit - started]
        started += len(fresh)
        yield Start(fresh)
        if _stopped((yield Await(for_room=False))):
            return (yield from _finish(Stop.STOPPED))
        if error is not None:
            raise error
        if started == limit:
            return Stop.LIMIT
        if len(batch) < policy.loop.batch.size:
            return Stop.EXHAUSTED


def _wanted(policy: ConsumerPolicy, started: int, left: int | None) -> int:
    loop = policy.loop
    own = None if loop.limit is None else loop.limit - started
    # A limit that was lowered meanwhile may be behind what has started.
    return max(0, min(size for size in (loop.batch.size, own, left) if size is not None))


def _stopped(reply: Cut | None) -> Stop | None:
    return Stop.STOPPED if reply is not None else None


def _finish(ending: Stop | Failure) -> Steps[Stop | Failure]:
    """Wait for what runs. After a stop, give back what has not started."""
    if ending is Stop.STOPPED:
        yield Withdraw()
    yield Drain()
    return ending


def take(source: Iterator[Any], size: int) -> tuple[list[Any], Exception | None]:
    """The next ones, and what kept the source from giving all of them."""
    batch: list[Any] = []
    try:
        batch.extend(islice(source, size))
    except Exception as error:  # noqa: BLE001 (raised once the good ones are done)
        return batch, error
    return batch, None


def _unseen(batch: list[Any], seen: set[str]) -> Iterator[Any]:
    for transaction in batch:
        if transaction.id not in seen:
            seen.add(transaction.id)
            yield transaction
