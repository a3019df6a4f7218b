"""Threads of which one writes for all: whatever becomes of that one, each has its own result, and none waits."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.db import OperationalError

from ergon_site.access.database.calls import DatabaseTimeoutError
from ergon_site.access.database.group_commit import CutOffError, Group
from tests.processes import LIMIT, eventually

COUNT = 6


class Held:
    """Writes items; what is first held back goes on when it is let go."""

    def __init__(self, end: Callable[[Sequence[int]], Any] = list) -> None:
        self.batches: list[list[int]] = []
        self.is_writing, self.may_go_on = threading.Event(), threading.Event()
        self._end = end

    def __call__(self, items: Sequence[int]) -> Any:
        self.batches.append(list(items))
        self.is_writing.set()
        assert self.may_go_on.wait(LIMIT)
        return self._end(items)


class Caller(threading.Thread):
    def __init__(self, group: Group[int, int], item: int, timeout: float | None = None) -> None:
        super().__init__(daemon=True)
        self._put: Callable[[], int] = lambda: group.put(item, timeout)
        self.outcome: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._put()
        except BaseException as error:  # noqa: BLE001 (to be looked at)
            self.outcome = error

    def break_off(self) -> None:
        """As a signal breaks off the main thread: with what is no `Exception`, wherever it is."""
        raise_in: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in(ctypes.c_ulong(self.ident or 0), ctypes.py_object(KeyboardInterrupt))


def led(group: Group[int, int], write: Held) -> list[Caller]:
    """A caller that writes, and others that wait for it."""
    callers = [Caller(group, 0)]
    assert write.is_writing.wait(LIMIT)
    for number in range(1, COUNT):
        callers.append(Caller(group, number))
        eventually(lambda: group.waiting == number, "it waits")  # noqa: B023 (called at once)
    return callers


def outcomes(callers: Sequence[Caller]) -> list[Any]:
    for caller in callers:
        caller.join(LIMIT)
        assert not caller.is_alive()
    return [caller.outcome for caller in callers]


def test_the_first_writes_at_once_and_one_writes_for_all_who_have_come_meanwhile() -> None:
    write = Held()
    callers = led(Group(write), write)
    write.may_go_on.set()
    assert outcomes(callers) == list(range(COUNT))
    assert write.batches == [[0], list(range(1, COUNT))]


def test_an_error_is_told_to_all_whose_items_it_kept_from_being_written() -> None:
    def refuse(items: Sequence[int]) -> list[int]:
        if len(items) > 1:
            msg = "no"
            raise OperationalError(msg)
        return list(items)

    write = Held(refuse)
    callers = led(Group(write), write)
    write.may_go_on.set()
    first, *others = outcomes(callers)
    assert (first, {str(error) for error in others}) == (0, {"no"})


def test_who_may_write_alone_does_so_after_somebody_else_has_failed() -> None:
    def refuse(items: Sequence[int]) -> list[int]:
        msg = "no"
        raise OperationalError(msg)

    write = Held(refuse)
    callers = led(Group(write, lambda item, _: item * 10), write)
    write.may_go_on.set()
    first, second, *others = outcomes(callers)
    assert isinstance(first, OperationalError)  # its own
    assert isinstance(second, OperationalError)
    assert others == [number * 10 for number in range(2, COUNT)]


@pytest.mark.parametrize("is_told", [True, False], ids=["while it writes", "before it has told anybody"])
def test_who_waits_for_a_thread_that_is_broken_off_is_told_that_nobody_knows(*, is_told: bool) -> None:
    class Results(list[int]):
        def __iter__(self) -> Iterator[int]:
            raise KeyboardInterrupt

    def break_off(items: Sequence[int]) -> Any:
        if len(items) == 1:
            return list(items)
        if is_told:
            raise KeyboardInterrupt
        return Results(items)

    write = Held(break_off)
    callers = led(Group(write), write)
    write.may_go_on.set()
    first, second, *others = outcomes(callers)
    assert first == 0
    assert isinstance(second, KeyboardInterrupt)
    assert {type(error) for error in others} == {CutOffError}


def test_who_is_broken_off_while_it_waits_keeps_nobody_waiting() -> None:
    write = Held()
    group = Group(write)
    callers = led(group, write)
    callers[1].break_off()
    eventually(lambda: group.waiting == COUNT - 2, "it has gone")
    write.may_go_on.set()
    first, second, *others = outcomes(callers)
    assert isinstance(second, KeyboardInterrupt)
    assert [first, *others] == [0, *range(2, COUNT)]
    assert write.batches == [[0], list(range(2, COUNT))]


def test_a_wait_for_others_ends_within_its_time() -> None:
    write = Held()
    group = Group(write)
    first = Caller(group, 0)
    assert write.is_writing.wait(LIMIT)
    others = [Caller(group, number, timeout=0.05) for number in range(1, COUNT)]
    assert {type(outcome) for outcome in outcomes(others)} == {DatabaseTimeoutError}
    assert group.waiting == 0
    write.may_go_on.set()
    assert outcomes([first]) == [0]


def test_who_has_just_been_written_with_others_is_waited_for() -> None:
    write = Held()
    group: Group[int, int] = Group(write, gather=LIMIT)
    callers = led(group, write)
    write.may_go_on.set()
    assert outcomes(callers) == list(range(COUNT))
    callers = [Caller(group, 10)]
    eventually(lambda: group.is_writing and group.waiting == 1, "one leads, and has taken nothing yet")
    callers += [Caller(group, number) for number in range(11, 9 + COUNT)]
    assert outcomes(callers) == list(range(10, 9 + COUNT))
    assert [len(batch) for batch in write.batches] == [1, COUNT - 1, COUNT - 1]


def test_nobody_is_waited_for_in_vain_for_long() -> None:
    group: Group[int, int] = Group(list, gather=0.01)
    tickets = [group.offer(number) for number in range(COUNT)]
    assert [group.complete(ticket) for ticket in tickets] == list(range(COUNT))
    assert [group.put(number) for number in range(3)] == [0, 1, 2]


def test_what_is_offered_is_taken_along_by_whoever_writes() -> None:
    group: Group[int, int] = Group(list)
    tickets = [group.offer(number) for number in range(3)]
    assert group.complete(tickets[1]) == 1
    assert [ticket.is_written for ticket in tickets] == [True] * 3
    assert [group.complete(ticket) for ticket in tickets] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of threads just begun or ended
def test_everybody_is_written_once_whatever_breaks_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers that come and go, broken off at any moment: none is written twice, and none who stays is left out."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # of those who are broken off before or after
    written: list[int] = []

    def write(items: Sequence[int]) -> list[int]:
        time.sleep(0)
        written.extend(items)
        return list(items)

    group: Group[int, int] = Group(write)
    callers = []
    for number in range(300):
        callers.append(Caller(group, number))
        if number % 3 == 0:
            callers[-1].break_off()
    ended = outcomes(callers)
    assert len(written) == len(set(written))
    stayed = [number for number, outcome in enumerate(ended) if outcome == number]
    assert set(stayed) <= set(written)
    assert {type(outcome) for outcome in ended} <= {int, KeyboardInterrupt, CutOffError, type(None)}
    assert group.put(1000) == 1000
