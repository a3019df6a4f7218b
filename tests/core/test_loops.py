"""Many transactions: what is fetched, when a loop ends, and why."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from engines.core.errors import FetchException
from engines.core.loops import consumption, production, take
from engines.core.outcome import CUT, Failure, Success
from engines.core.policy import (
    BatchPolicy,
    ConsumerLoopPolicy,
    ConsumerPolicy,
    ConsumerSteps,
    EmptyQueuePolicy,
    FetchPolicy,
    ProducerLoopPolicy,
    ProducerPolicy,
    RetryPolicy,
)
from engines.core.steps import Await, Call, Drain, Enter, Leave, Skip, Sleep, Start, Step, Stop, Take, Withdraw
from tests.core.playing import Play, play


class Item(NamedTuple):
    id: str


def items(*names: object) -> list[Item]:
    return [Item(str(name)) for name in names]


def policy(*, size: int = 2, retry: RetryPolicy | None = None, **loop: Any) -> ConsumerPolicy:
    steps = ConsumerSteps(fetch=FetchPolicy(retry=retry or RetryPolicy()))
    return ConsumerPolicy(loop=ConsumerLoopPolicy(batch=BatchPolicy(size=size), **loop), steps=steps)


def consume(policy: ConsumerPolicy, *fetches: Any, is_prefetching: bool = False) -> Play:
    return play(consumption(lambda: policy, is_prefetching=is_prefetching), fetches, Call)


def outline(played: Play) -> list[str]:
    return played.names(Enter, Leave)


def test_a_loop_that_is_not_streaming_ends_at_the_first_empty_fetch() -> None:
    played = consume(policy(), Success(items(1, 2)), Success([]))
    assert outline(played) == ["Call", "Start", "Await", "Call", "Drain"]
    assert played.result is Stop.EMPTY


def test_what_was_fetched_is_started_as_it_came() -> None:
    batch = items(3, 1, 2)
    assert consume(policy(size=3), Success(batch), Success([])).of(Start)[0].transactions == batch


def test_it_asks_for_no_more_than_the_limit_leaves() -> None:
    played = consume(policy(size=4, limit=6), Success(items(1, 2, 3, 4)), Success(items(5, 6)))
    assert [call.argument for call in played.of(Call)] == [4, 2]
    assert played.result is Stop.LIMIT


def test_a_limit_that_is_lowered_below_what_has_started_ends_the_loop() -> None:
    in_force = iter([policy(size=4, limit=6), policy(size=4, limit=2)])
    played = play(consumption(lambda: next(in_force)), [Success(items(1, 2, 3, 4))], Call)
    assert [call.argument for call in played.of(Call)] == [4]
    assert played.result is Stop.LIMIT


def test_what_others_have_left_of_a_shared_limit_bounds_it_and_ends_it() -> None:
    left = iter([None, 2, 0])
    played = play(
        consumption(lambda: policy(size=4, limit=9, streaming=True), starts_left=lambda: next(left)),
        [Success(items(1, 2)), Success([])],
        Call,
    )
    assert [call.argument for call in played.of(Call)] == [4, 2]
    assert outline(played)[-1] == "Drain"
    assert played.result is Stop.LIMIT


def test_a_small_batch_leaves_the_limit_open() -> None:
    played = consume(policy(size=4, limit=3), Success(items(1)), Success(items(2, 3)))
    assert [call.argument for call in played.of(Call)] == [3, 2]


def test_a_streaming_loop_waits_longer_with_every_empty_fetch_and_begins_anew_after_work() -> None:
    empty = EmptyQueuePolicy(backoff=1, backoff_multiplier=3, backoff_cap=5)
    fetches = [Success([])] * 3 + [Success(items(1)), Success([]), CUT]
    played = consume(policy(streaming=True, empty_queue=empty), *fetches)
    assert [sleep.seconds for sleep in played.of(Sleep)] == [1, 3, 5, 1]
    assert played.result is Stop.STOPPED


@pytest.mark.parametrize("kind", [Await, Sleep])
def test_a_stop_gives_back_what_has_not_started_and_lets_the_rest_end(kind: type[Step]) -> None:
    def answer(step: Step) -> Any:
        if isinstance(step, Call):
            return Success([] if kind is Sleep else items(1, 2))
        return CUT if isinstance(step, kind) else None

    played = play(consumption(lambda: policy(streaming=True)), answer)
    assert outline(played)[-2:] == ["Withdraw", "Drain"]
    assert played.result is Stop.STOPPED


def test_a_failed_fetch_is_tried_again_and_then_ends_the_loop_after_what_runs() -> None:
    gone = Failure(FetchException("gone"))
    played = consume(policy(retry=RetryPolicy(max_attempts=2, backoff=1)), Success(items(1)), gone, gone)
    assert outline(played) == ["Call", "Start", "Await", "Call", "Sleep", "Call", "Drain"]
    assert played.result is gone


def test_a_prefetching_loop_waits_for_room_only() -> None:
    played = consume(policy(limit=2), Success(items(1)), Success(items(2)), is_prefetching=True)
    assert [step.for_room for step in played.of(Await)] == [True, True]


def test_a_prefetching_loop_looks_again_once_what_ran_has_ended() -> None:
    fetches = [Success(items(1)), Success([]), Success(items(2)), Success([]), Success([])]
    played = consume(policy(), *fetches, is_prefetching=True)
    assert outline(played) == ["Call", *["Start", "Await", "Call", "Await", "Flush", "Call"] * 2, "Drain"]
    assert [step.for_room for step in played.of(Await)] == [True, False] * 2
    assert played.result is Stop.EMPTY


def test_a_stop_while_it_waits_for_the_last_ones_ends_it() -> None:
    fetches = iter([Success(items(1)), Success([])])

    def answer(step: Step) -> Any:
        if isinstance(step, Call):
            return next(fetches)
        return CUT if isinstance(step, Await) and not step.for_room else None

    ended = play(consumption(policy, is_prefetching=True), answer)
    assert outline(ended)[-3:] == ["Await", "Withdraw", "Drain"]
    assert ended.result is Stop.STOPPED


def test_only_the_wait_for_more_work_ends_when_there_is_some() -> None:
    gone = Failure(FetchException("gone"))
    retry = RetryPolicy(max_attempts=2, backoff=1)
    played = consume(policy(streaming=True, retry=retry), Success([]), gone, gone)
    assert [sleep.is_for_work for sleep in played.of(Sleep)] == [True, False]


def produce(names: list[Item], answer: Callable[[Step], Any] = lambda _: None, **loop: Any) -> Play:
    size = loop.pop("size", 2)
    rules = ProducerPolicy(loop=ProducerLoopPolicy(batch=BatchPolicy(size=size), **loop))
    return play(production(rules, names), answer)


def started(played: Play) -> list[list[str]]:
    return [[item.id for item in step.transactions] for step in played.of(Start)]


def test_a_producer_works_through_its_list_batch_by_batch() -> None:
    played = produce(items(1, 2, 3, 4, 5))
    assert started(played) == [["1", "2"], ["3", "4"], ["5"]]
    assert played.names(Skip) == ["Start", "Await"] * 3
    assert played.result is Stop.EXHAUSTED


def test_an_empty_list_is_exhausted_at_once() -> None:
    assert produce([]).result is Stop.EXHAUSTED


def test_a_producer_skips_what_it_has_seen() -> None:
    played = produce(items(1, 1, 2, 1, 3))
    assert started(played) == [["1"], ["2"], ["3"]]
    assert sum(step.how_many for step in played.of(Skip)) == 2


def test_a_producer_starts_no_more_than_its_limit() -> None:
    played = produce(items(1, 2, 3, 4, 5), limit=3)
    assert started(played) == [["1", "2"], ["3"]]
    assert played.result is Stop.LIMIT


def test_a_producer_that_is_stopped_lets_what_runs_end() -> None:
    played = produce(items(1, 2, 3), lambda step: CUT if isinstance(step, Await) else None)
    assert started(played) == [["1", "2"]]
    assert played.of(Withdraw, Drain) == [Withdraw(), Drain()]
    assert played.result is Stop.STOPPED


def test_a_slow_source_is_asked_by_the_driver_until_it_gives_up() -> None:
    def answer(step: Step) -> Any:
        if isinstance(step, Take):
            taken.append(step)
            return take(step.source, step.size) if len(taken) == 1 else CUT
        return None

    taken: list[Take] = []
    rules = ProducerPolicy(loop=ProducerLoopPolicy(batch=BatchPolicy(size=2)))
    played = play(production(rules, items(1, 2, 3), is_slow=True), answer)
    assert started(played) == [["1", "2"]]
    assert played.result is Stop.STOPPED


def test_a_producer_whose_input_fails_does_the_good_ones_first() -> None:
    def failing() -> Iterator[Item]:
        yield from items(1, 2, 3)
        msg = "no more"
        raise OSError(msg)

    seen: list[list[str]] = []

    def answer(step: Step) -> None:
        if isinstance(step, Start):
            seen.append([item.id for item in step.transactions])

    rules = ProducerPolicy(loop=ProducerLoopPolicy(batch=BatchPolicy(size=2)))
    with pytest.raises(OSError, match="no more"):
        play(production(rules, failing()), answer)
    assert seen == [["1", "2"], ["3"]]


def test_a_loop_that_ends_when_nothing_is_due_waits_for_what_it_has_parked() -> None:
    due = iter([7.5, None])
    fetches = iter([Success(items(1)), Success([]), Success([]), Success(items(1)), Success([]), Success([])])

    def answer(step: Step) -> Any:
        return next(fetches) if isinstance(step, Call) else None

    played = play(consumption(policy, is_prefetching=True, due_in=lambda: next(due)), answer)
    parts = ["Call", "Start", "Await", "Call", "Await", "Flush", "Call"]
    assert outline(played) == [*parts, "Sleep", *parts, "Drain"]
    assert played.of(Sleep) == [Sleep(7.5, is_for_work=True, is_exact=True)]
    assert played.result is Stop.EMPTY


def test_a_stop_ends_the_wait_for_what_is_parked() -> None:
    played = play(
        consumption(policy, due_in=lambda: 60.0), lambda step: {Call: Success([]), Sleep: CUT}.get(type(step))
    )
    assert played.result is Stop.STOPPED


@pytest.mark.parametrize(("due", "seconds"), [(None, 5.0), (60.0, 5.0), (0.25, 0.25)])
def test_a_streaming_loop_looks_again_when_something_that_it_parked_is_due(due: float | None, seconds: float) -> None:
    waits = EmptyQueuePolicy(backoff=5.0)
    answers = {Call: Success([]), Sleep: CUT}
    rules = policy(streaming=True, empty_queue=waits)
    played = play(consumption(lambda: rules, due_in=lambda: due), lambda step: answers.get(type(step)))
    assert [sleep.seconds for sleep in played.of(Sleep)] == [seconds]
