"""A signal may interrupt the main thread while it holds the very lock that a stop needs."""

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Lock
from typing import Any

import pytest

from engines.worker.signals import StopSignals
from ergon_site.access.cli.service import ServiceCommand
from ergon_site.access.signals import StopEvent
from facts.client import BoundaryClient
from facts.core.steps import Pause
from tests.processes import LIMIT

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("_signals")]


class Service(ServiceCommand):
    def add_options(self, parser: ArgumentParser) -> None: ...

    def run(self, **_: Any) -> None: ...


def on_orders(stop: Callable[[], None]) -> None:
    StopSignals().stop_with(stop)


def on_signals(stop: Callable[[], None]) -> None:
    Service().stop_on_signals(stop)


@pytest.mark.parametrize("stop_by", [on_orders, on_signals])
def test_an_order_to_stop_waits_for_what_it_interrupts(stop_by: Callable[[Callable[[], None]], None]) -> None:
    lock, is_stopped = Lock(), Event()

    def stop() -> None:
        if lock.acquire(timeout=10):
            is_stopped.set()

    stop_by(stop)
    with lock:
        signal.raise_signal(signal.SIGTERM)
    assert is_stopped.wait(LIMIT)


def test_a_client_may_be_stopped_at_every_line_of_its_wait() -> None:
    for number in count(1):
        with BoundaryClient("http://boundary.example", "ergon_" + "a" * 40) as client:
            with interrupted(number, client.stop) as was_interrupted, limited(LIMIT):
                client._do(Pause(0.001))
            if not was_interrupted():
                break
            assert client._do(Pause(LIMIT))
    assert number > 3


def test_an_event_that_is_set_stays_set_for_everybody() -> None:
    event = StopEvent()
    assert not event.wait(-1)
    event.set()
    assert [event.wait(0), event.wait(LIMIT)] == [True, True]


def test_a_wait_whose_time_is_up_before_it_begins_ends() -> None:
    with limited(LIMIT):
        assert not any(StopEvent().wait(0.000001) for _ in range(1000))


@contextmanager
def interrupted(number: int, call: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Make a call, as a signal handler would, before so many lines of what is called within."""
    left = number

    def trace(_frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left == 0:
            left = -1
            call()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: left < 0
    finally:
        sys.settrace(before)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Who waits for itself is freed, and fails."""

    def fail(*_: Any) -> None:
        pytest.fail("it waits for itself")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
