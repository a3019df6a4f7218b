"""The one thread that touches a connection: kombu's are not made for several."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import structlog

from engines import telemetry
from engines.connectors.broker.lines import ANSWER_LIMIT, Line
from engines.connectors.broker.messages import Delivery
from engines.core.backoff import exponential
from engines.core.errors import ConnectorError, told

# How long a fetch that waits keeps an acknowledgement waiting.
SLICE = 0.02
# How long a broker that did not answer in all our patience is taken not to answer.
HOPELESS = 5.0

log = structlog.get_logger("ergon.broker")


class Errand(NamedTuple):
    """Something to do on the line. A patient one lets others go before it."""

    call: Callable[[Line], Any]
    future: "Future[Any]"
    is_patient: bool


class Owner:
    """Takes errands from any thread and runs them in its own, one after the other; connects anew when it has to."""

    def __init__(self, line: Line, *, patience: float) -> None:
        self._line, self._patience = line, patience
        self._errands: SimpleQueue[Errand | None] = SimpleQueue()
        self._postponed: deque[Errand] = deque()
        self._done: deque[Delivery] = deque()
        self._lock = threading.Lock()
        self._is_closed = False
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._tick_at = 0.0
        self._is_in_trouble = False
        self._hopeless_until = 0.0

    def ask(self, call: Callable[[Line], Any], *, is_patient: bool = False) -> "Future[Any]":
        with self._lock:
            if self._is_closed:
                msg = f"the connector of {self._line} is closed"
                raise ConnectorError(msg)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ergon-broker", daemon=True)
                self._thread.start()
            errand = Errand(call, Future(), is_patient)
            self._errands.put(errand)
        return errand.future

    def take(self, count: int, wait: float) -> "Future[list[Delivery]]":
        """Up to so many messages; if there is none, the first that comes within the wait."""
        return self.ask(lambda line: self._take(line, count, wait), is_patient=True)

    def acknowledge(self, delivery: Delivery) -> "Future[None]":
        """Whoever comes first takes along what the others have brought."""
        self._done.append(delivery)
        return self.ask(self._settle)

    def interrupt(self) -> None:
        """Wait no longer, neither for messages nor for a broker that does not answer."""
        self._hurry.set()

    @property
    def is_interrupted(self) -> bool:
        return self._hurry.is_set()

    def close(self) -> None:
        """Do what was asked for, give back what is in hand, and end."""
        self.interrupt()
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
            if not is_closed:
                self._errands.put(None)
        if self._thread is not None:
            self._thread.join(ANSWER_LIMIT)

    def _run(self) -> None:
        while (errand := self._next()) is not None:
            self._carry_out(errand)
        with suppress(Exception):  # the broker notices by itself that we are gone
            self._line.close()

    def _next(self) -> Errand | None:
        """The next errand; in the quiet between them the broker hears that we are still here."""
        while True:
            self._keep_alive()
            if self._postponed:
                return self._postponed.popleft()
            try:
                return self._errands.get(timeout=max(0.0, self._tick_at - time.monotonic()))
            except Empty:
                continue

    def _keep_alive(self) -> None:
        if time.monotonic() < self._tick_at:
            return
        self._tick_at = time.monotonic() + self._line.tick
        try:
            self._line.keep_alive()
        except Exception as error:  # noqa: BLE001 (the thread lives on, with a new connection)
            self._lose(error)

    def _carry_out(self, errand: Errand) -> None:
        if not errand.future.running() and not errand.future.set_running_or_notify_cancel():
            return
        try:
            errand.future.set_result(self._insist(errand.call))
        except BaseException as error:  # noqa: BLE001 (handed to whoever asked)
            errand.future.set_exception(error)

    def _insist(self, call: Callable[[Line], Any]) -> Any:
        """Do it, on a new connection if this one breaks, for as long as our patience lasts."""
        until = time.monotonic() + self._patience
        for failures in itertools.count():
            try:
                value = call(self._line)
            except self._line.refused as error:
                self._line.drop()
                msg = f"the broker {self._line} refuses us: {told(error)}"
                raise ConnectorError(msg) from error
            except self._line.broken as error:
                self._lose(error)
                if not self._may_try_again(failures, until):
                    msg = f"the broker {self._line} does not answer: {told(error)}"
                    raise ConnectorError(msg) from error
            except ConnectorError:
                raise
            except Exception:
                self._line.drop()  # who knows what state it is in
                raise
            else:
                self._find_again()
                return value
        return None

    def _lose(self, error: Exception) -> None:
        if not self._is_in_trouble:
            log.warning("broker_lost", broker=str(self._line), error=told(error))
        self._is_in_trouble = True
        self._line.drop()

    def _find_again(self) -> None:
        if self._is_in_trouble:
            log.info("broker_found_again", broker=str(self._line))
        self._is_in_trouble, self._hopeless_until = False, 0.0

    def _may_try_again(self, failures: int, until: float) -> bool:
        now = time.monotonic()
        if self._hurry.is_set() or now < self._hopeless_until:
            return False
        if now >= until:
            self._hopeless_until = now + HOPELESS
            return False
        self._hurry.wait(exponential(failures, backoff=0.05, multiplier=2, cap=2.0))
        return True

    def _take(self, line: Line, count: int, wait: float) -> list[Delivery]:
        until = time.monotonic() + wait
        line.begin(count)
        taken = line.collect(SLICE)
        while not taken and time.monotonic() < until and not self._hurry.is_set():
            self._serve_others(line)
            taken = line.collect(SLICE)
        return taken + line.end()

    def _settle(self, line: Line) -> None:
        if done := list(self._done):
            if (late := len(done) - line.acknowledge(done)) > 0:
                telemetry.stale.add(late)
            for _ in done:
                self._done.popleft()

    def _serve_others(self, line: Line) -> None:
        """What came in while a fetch waits. If the connection breaks over it, it is done after the fetch."""
        self._keep_alive()
        while not self._errands.empty():
            errand = self._errands.get()
            if errand is None or errand.is_patient:
                self._errands.put(errand)
                return
            if not errand.future.set_running_or_notify_cancel():
                continue
            try:
                errand.future.set_result(errand.call(line))
            except line.broken:
                self._postponed.append(errand)
                raise
            except BaseException as error:  # noqa: BLE001 (handed to whoever asked)
                errand.future.set_exception(error)
