"""Who is next, and what it came to."""

import pickle
from typing import NamedTuple

from hypothesis import given, strategies as st

from engines.core.backlog import FAILURES_KEPT, Backlog, Tally
from engines.core.errors import ConsumerLoopTimeout, TransactionException
from engines.core.outcome import CUT, Failure, Success
from engines.core.steps import Stop


class Item(NamedTuple):
    id: str
    number: int = 0


def test_items_come_in_order_until_there_are_none() -> None:
    backlog = Backlog()
    backlog.add([Item("a"), Item("b")])
    assert [backlog.take(), backlog.take(), backlog.take()] == [Item("a"), Item("b"), None]
    assert backlog.running == [Item("a"), Item("b")]


def test_a_twin_waits_its_turn_and_comes_next() -> None:
    backlog = Backlog()
    first, twin, triplet, other = Item("a", 1), Item("a", 2), Item("a", 3), Item("b")
    backlog.add([first, twin, triplet, other])
    assert [backlog.take(), backlog.take(), backlog.take()] == [first, other, None]
    backlog.end(other)
    assert backlog.take() is None
    backlog.end(first)
    assert (backlog.take(), backlog.waiting) == (twin, 1)
    backlog.end(twin)
    assert backlog.take() == triplet


def test_what_has_not_started_can_be_withdrawn() -> None:
    backlog = Backlog()
    backlog.add([Item("a", 1), Item("a", 2), Item("b"), Item("c")])
    backlog.take()
    backlog.take()
    assert backlog.withdraw() == [Item("c"), Item("a", 2)]
    assert (backlog.waiting, len(backlog.running)) == (0, 2)


def test_what_is_not_wanted_any_more_leaves_the_backlog_and_what_runs_goes_on() -> None:
    backlog = Backlog()
    backlog.add([Item("a", 1), Item("a", 2), Item("a", 3), Item("b", 1), Item("b", 2), Item("c", 1), Item("d", 2)])
    assert [backlog.take(), backlog.take()] == [Item("a", 1), Item("b", 1)]
    backlog.take()
    backlog.add([Item("e", 2), Item("f", 1)])
    backlog.drop(lambda item: item.number == 2)
    assert (backlog.waiting, len(backlog.running)) == (2, 3)
    backlog.end(Item("a", 1))
    backlog.end(Item("b", 1))
    assert [backlog.take(), backlog.take(), backlog.take()] == [Item("a", 3), Item("f", 1), None]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_never_two_of_an_id_at_once_and_none_lost(events: list[tuple[str, bool]]) -> None:
    backlog, taken, running = Backlog(), 0, []
    for number, (name, is_ending) in enumerate(events):
        backlog.add([Item(name, number)])
        item = backlog.take()
        if item is not None:
            running.append(item)
            taken += 1
        assert len({one.id for one in running}) == len(running)
        if is_ending and running:
            backlog.end(running.pop(0))
    assert taken + len(backlog.withdraw()) == len(events)


def test_a_tally_counts_what_ended_and_not_what_was_cut() -> None:
    tally = Tally()
    error = TransactionException("no")
    for outcome in (Success(1), Failure(error), CUT):
        tally.count(Item("a"), outcome)
    report = tally.report(1.5, Stop.EMPTY)
    assert report._asdict() == {
        "processed": 2,
        "succeeded": 1,
        "failed": 1,
        "skipped": 0,
        "elapsed": 1.5,
        "stopped_by": "empty",
        "failures": (("a", error),),
    }
    assert report.failures[0].exception is error


def test_a_report_keeps_the_newest_failures() -> None:
    tally = Tally()
    for number in range(FAILURES_KEPT + 5):
        tally.count(Item(str(number)), Failure(TransactionException("no")))
    failures = tally.report(0, Stop.EMPTY).failures
    assert (len(failures), failures[0].id, failures[-1].id) == (FAILURES_KEPT, "5", str(FAILURES_KEPT + 4))


def test_a_loop_timeout_is_a_timeout_error_with_the_report() -> None:
    report = Tally().report(1, Stop.STOPPED)
    error = ConsumerLoopTimeout("late", report)
    assert isinstance(error, TimeoutError)
    assert error.report is report
    assert pickle.loads(pickle.dumps(error)).report == report  # noqa: S301 (our own bytes)
