"""The one thread that touches a connection: kombu's are not made for several."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from queue import Empty, Queue
from typing import Any, NamedTuple

import structlog

from engines import telemetry
from engines.connectors.broker.lines import ANSWER_LIMIT, Line
from engines.connectors.broker.messages import Delivery
from engines.connectors.freshness import since_boot
from engines.core.backoff import exponential
from engines.core.errors import ConnectorError, UnreachableError, error_text

# How long a fetch that waits keeps an acknowledgement waiting.
SLICE = 0.02
# How long a broker that did not answer in all our patience is taken not to answer.
HOPELESS = 5.0
# How often whoever waits for an answer looks whether it is still wanted, and how long a last answer may take then.
LOOK = 0.2
LAST_ANSWER = 1.0
# How long giving back at the end may take: shorter than a process that is told to end waits for its pipelines.
CLOSE_LIMIT = 3.0

log = structlog.get_logger("ergon.broker")


class Errand(NamedTuple):
    """Something to do on the line. A patient one lets others go before it."""

    call: Callable[[Line], Any]
    future: "Future[Any]"
    is_patient: bool
    patience: float | None
    unwanted: threading.Event  # from then on it is not tried again


class Owner:
    """Takes errands from any thread and runs them in its own, one after the other; connects anew when it has to.

    `patience` is how long an errand is tried again while the broker does not answer; None: until it is unwanted. An
    interruption makes fetches unwanted, giving up everything else.
    """

    def __init__(self, line: Line, *, patience: float | None) -> None:
        self._line, self.patience = line, patience
        # No SimpleQueue: if the time of its `get` is up before it begins to wait, it waits for ever.
        self._errands: Queue[Errand | None] = Queue()
        self._postponed: deque[Errand] = deque()
        self._done: deque[Delivery] = deque()
        self._late: set[Delivery] = set()
        self._untold: set[Future[bool]] = set()  # outcomes that the broker has not taken yet
        self._has_lost_outcomes = False
        self._lock = threading.Lock()
        self._is_closed = False
        self.hurry, self._given_up = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._tick_at = 0.0
        self._lost_at: float | None = None
        self._hopeless_until = 0.0

    def ask(
        self,
        call: Callable[[Line], Any],
        *,
        is_patient: bool = False,
        patience: float | None = None,
        unwanted: threading.Event | None = None,
    ) -> "Future[Any]":
        with self._lock:
            if self._is_closed:
                msg = f"the connector of {self._line} is closed"
                raise ConnectorError(msg)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="ergon-broker", daemon=True)
                thread.start()
                self._thread = thread  # not before: if the machine has no more threads, the next request tries again
            patience = self.patience if patience is None else patience
            errand = Errand(call, Future(), is_patient, patience, unwanted or self._given_up)
            self._errands.put(errand)
        return errand.future

    def take(self, count: int, wait: float) -> "Future[list[Delivery]]":
        """Up to so many messages; if there is none, the first that comes within the wait."""
        return self.ask(lambda line: self._take(line, count, wait), is_patient=True, unwanted=self.hurry)

    def acknowledge(self, delivery: Delivery) -> "Future[bool]":
        """Whether the broker still waited to hear of it. Whoever comes first takes along what others have brought."""
        self._done.append(delivery)
        asked = self.ask(lambda line: self._settle(line, delivery))
        self._untold.add(asked)
        asked.add_done_callback(self._forget_outcome)
        return asked

    def start(self, delivery: Delivery) -> bool:
        """Whether a delivery may be run: it is ours, and the start of a redelivered one is recorded."""
        if not delivery.is_suspect and (known := self._line.is_ours(delivery)) is not None:
            return known
        asked = self.ask(
            lambda line: line.start(delivery) if delivery.is_suspect else self._confirm(line, delivery),
            unwanted=self.hurry,
        )
        try:
            return bool(self.answer(asked, unwanted=self.hurry))
        except UnreachableError:
            if self.hurry.is_set():
                return False
            raise

    def may_start_at_once(self, delivery: Delivery) -> bool:
        return not delivery.is_suspect and self._line.is_ours(delivery) is True

    def is_lost(self, delivery: Delivery) -> bool:
        return self._line.is_ours(delivery) is False

    def confirm(self, delivery: Delivery) -> bool:
        """Ask the broker whether a delivery is still ours."""
        return bool(self.answer(self.ask(lambda line: self._confirm(line, delivery))))

    def answer(
        self, asked: "Future[Any]", *, limit: float | None = None, unwanted: threading.Event | None = None
    ) -> Any:
        """The answer to a request. Raises if it takes too long, or shortly after nobody wants it any more."""
        unwanted = unwanted or self._given_up
        if limit is None and self.patience is not None:
            limit = self.patience + 2 * ANSWER_LIMIT
        until = None if limit is None else time.monotonic() + limit
        unwanted_until: float | None = None
        while True:
            try:
                return asked.result(LOOK if until is None else min(LOOK, max(0.0, until - time.monotonic())))
            except TimeoutError:
                if asked.done():
                    raise
            now = time.monotonic()
            if unwanted_until is None and unwanted.is_set():
                unwanted_until = now + LAST_ANSWER
            if any(end is not None and now >= end for end in (until, unwanted_until)):
                msg = f"the broker {self._line} does not answer"
                raise UnreachableError(msg) from None

    def flush(self) -> None:
        """Return once the broker has taken every outcome, or say that it has not."""
        with suppress(ConnectorError, CancelledError):  # told below
            for asked in list(self._untold):
                self.answer(asked)
        if self._has_lost_outcomes or self._untold:
            msg = f"the broker {self._line} did not confirm all outcomes; their messages will be delivered again"
            raise UnreachableError(msg)

    def interrupt(self) -> None:
        """Wait no longer for messages, nor for a broker that does not answer before one begins."""
        self.hurry.set()

    def give_up(self) -> None:
        """Wait no longer for a broker that does not answer, whatever for."""
        self.interrupt()
        self._given_up.set()

    def close(self) -> None:
        """Do what was asked for, give back what is in hand, and end."""
        limit = LAST_ANSWER if self._given_up.is_set() else CLOSE_LIMIT
        self.give_up()
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
            if not is_closed:
                self._errands.put(None)
        if self._thread is not None:
            self._thread.join(limit)

    def _run(self) -> None:
        while (errand := self._next()) is not None:
            if errand.future.running() or errand.future.set_running_or_notify_cancel():
                try:
                    errand.future.set_result(self._insist(errand))
                except BaseException as error:  # noqa: BLE001 (handed to whoever asked)
                    errand.future.set_exception(error)
        with suppress(Exception):  # the broker notices by itself that we are gone
            self._line.close()

    def _next(self) -> Errand | None:
        """The next errand; in the quiet between them the broker hears that we are still here."""
        while True:
            try:
                self._keep_alive(self._line)
            except Exception as error:  # noqa: BLE001 (the thread lives on, with a new connection)
                self._lose(error)
                self._tick_at = since_boot() + self._line.tick
            if self._postponed:
                return self._postponed.popleft()
            try:
                return self._errands.get(timeout=max(0.0, self._tick_at - since_boot()))
            except Empty:
                continue

    def _keep_alive(self, line: Line) -> None:
        if since_boot() >= self._tick_at:
            self._tick_at = since_boot() + line.tick
            line.keep_alive()

    def _insist(self, errand: Errand) -> Any:
        """Do it, on a new connection if this one breaks, for as long as our patience lasts."""
        until = None if errand.patience is None else time.monotonic() + errand.patience
        for failures in itertools.count():
            try:
                value = errand.call(self._line)
            except self._line.refused as error:
                self._line.drop()
                msg = f"the broker {self._line} refuses the connection: {error_text(error)}"
                raise ConnectorError(msg) from error
            except self._line.broken as error:
                self._lose(error)
                if not self._may_try_again(failures, until, errand.unwanted):
                    msg = f"the broker {self._line} does not answer: {error_text(error)}"
                    raise UnreachableError(msg) from error
            except ConnectorError:
                raise
            except Exception:
                self._line.drop()  # who knows what state it is in
                raise
            else:
                if self._lost_at is not None:
                    after = round(time.monotonic() - self._lost_at, 1)
                    log.info("broker_found_again", broker=str(self._line), after=after)
                self._lost_at, self._hopeless_until = None, 0.0
                return value
        return None

    def _lose(self, error: Exception) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            hint = "retrying until it answers"
            log.warning("broker_lost", broker=str(self._line), error=error_text(error), hint=hint)
        self._line.drop()
        self._tick_at = 0.0  # what is held is renewed first thing on the next connection

    def _may_try_again(self, failures: int, until: float | None, unwanted: threading.Event) -> bool:
        now = time.monotonic()
        if unwanted.is_set() or now < self._hopeless_until:
            return False
        if until is not None and now >= until:
            if self.patience is not None:  # where outages are waited out, nothing is to fail at once
                self._hopeless_until = now + HOPELESS
            return False
        return not unwanted.wait(exponential(failures, backoff=0.05, multiplier=2, cap=2.0))

    def _take(self, line: Line, count: int, wait: float) -> list[Delivery]:
        until = time.monotonic() + wait
        self._keep_alive(line)  # before anybody looks for leases that have lapsed: they may be ours
        line.begin(count)
        taken = line.collect(SLICE)
        while not taken and time.monotonic() < until and not self.hurry.is_set():
            self._serve_others(line)
            taken = line.collect(SLICE)
        return taken + line.end()

    def _confirm(self, line: Line, delivery: Delivery) -> bool:
        """Ask the broker until it is known; an answer that is too old when it comes says nothing."""
        is_ours = line.is_ours(delivery)
        while is_ours is not False:
            line.confirm()
            is_ours = line.is_ours(delivery)
            if is_ours or self._given_up.is_set():
                break
        return is_ours is not False

    def _settle(self, line: Line, delivery: Delivery) -> bool:
        if done := list(self._done):
            late = line.acknowledge(done)
            self._late.update(late)
            for _ in done:
                self._done.popleft()
            if late:
                telemetry.stale.add(len(late))
        is_late = delivery in self._late
        self._late.discard(delivery)
        return not is_late

    def _forget_outcome(self, asked: "Future[bool]") -> None:
        if asked.cancelled() or asked.exception() is not None:
            self._has_lost_outcomes = True
        self._untold.discard(asked)

    def _serve_others(self, line: Line) -> None:
        """Serve requests that came in while a fetch waits; after a broken connection, once the fetch is over."""
        self._keep_alive(line)
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
