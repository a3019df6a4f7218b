"""Looks for work on behalf of all loops of a process that wait for some, with one statement for all of them."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import structlog

from engines.core.errors import ConnectorError, headline
from engines.core.pacing import Alarms, Polls
from engines.core.policy import EmptyQueuePolicy
from engines.transactions.statements import statements
from engines.worker.database_retry import DatabaseRetry
from ergon_site.access.database.calls import close_connection

# The wait after a look that has failed.
RETRY = 1.0

log = structlog.get_logger("ergon.poller")


class Poller:
    """A thread that looks as often as the waiting loops' policies say, and wakes those that have work.

    It is there from the first wait on. What a notification wakes need not be looked for.
    """

    def __init__(
        self,
        borrow: Callable[[], AbstractContextManager[None]] = nullcontext,
        require: Callable[[], None] = lambda: None,
    ) -> None:
        """`borrow` lends the connection for a look; `require` raises where nothing may be claimed at present."""
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._require = require
        self._polls = Polls()
        self._parked: defaultdict[int, Alarms] = defaultdict(Alarms)  # when they are due, by pipeline
        self._changed = threading.Condition()
        self._is_over = False
        self._retry = DatabaseRetry("look for work", borrow=borrow, on_return=self.hurry)
        self._said = ""
        self._sleeps_until = math.inf
        self._thread: threading.Thread | None = None
        self.longest_wait = math.inf

    def __contains__(self, pipeline_id: int) -> bool:
        """Whether the loop of a pipeline is waiting for work."""
        with self._changed:
            return pipeline_id in self._polls

    def subscribe(self, pipeline_id: int, callback: Callable[[], None] | None) -> None:
        """Call this when there may be work for the pipeline; None for nobody."""
        with self._changed:
            if callback is None:
                self._callbacks.pop(pipeline_id, None)
                self._polls.end(pipeline_id)
            else:
                self._callbacks[pipeline_id] = callback

    def expect(
        self, pipeline_id: int, seconds: float, empty_queue: EmptyQueuePolicy | None, *, is_urgent: bool = False
    ) -> None:
        """The loop of a pipeline waits: look for it after so many seconds, or very soon; and then by its policy."""
        growth, cap = (empty_queue.backoff_multiplier, empty_queue.backoff_cap) if empty_queue else (1.0, 0.0)
        with self._changed:
            if self._thread is None and not self._is_over:
                thread = threading.Thread(target=self._run, name="ergon-poller", daemon=True)
                thread.start()
                self._thread = thread  # not before: it may fail, and then the next pipeline must try again
            now, most = time.monotonic(), min(cap or math.inf, self.longest_wait)
            at = self._polls.expect(pipeline_id, now, seconds, growth=growth, most=most, is_urgent=is_urgent)
            if at < self._sleeps_until:
                self._changed.notify_all()

    def remind(self, pipeline_id: int, moment: float) -> None:
        """A transaction is parked until then: look for it, whatever the policy says of waits."""
        with self._changed:
            at = self._parked[pipeline_id].add(moment)
            self._polls.expect_by(pipeline_id, at)
            self._changed.notify_all()

    def due_in(self, pipeline_id: int) -> float | None:
        """The seconds until the next transaction is due that this process has parked; None if there is none."""
        with self._changed:
            return self._parked[pipeline_id].due_in(time.monotonic())

    def end(self, pipeline_id: int) -> None:
        """The loop does not wait any more."""
        with self._changed:
            self._polls.end(pipeline_id)

    def tell(self, pipeline_id: int) -> None:
        """There may be work for a pipeline."""
        if callback := self._callbacks.get(pipeline_id):
            self.end(pipeline_id)
            callback()

    def tell_all(self) -> None:
        for pipeline_id in list(self._callbacks):
            self.tell(pipeline_id)

    def hurry(self) -> None:
        """There may be work for anybody: look now. Who is about to wait has looked too early, and is told."""
        with self._changed:
            self._polls.hurry()
            self._changed.notify_all()
            others = [callback for key, callback in self._callbacks.items() if key not in self._polls]
        for callback in others:
            callback()

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._retry.give_up()
        if self._thread is not None:
            self._thread.join(RETRY)

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            try:
                found = self._retry.try_once(partial(self._due, waiting))
                self._said = ""
            except ConnectorError:  # nothing can be written any more: the loops find that out, and end
                found = set(waiting)
            except Exception as error:
                found = None
                if self._said != headline(error):  # once, not at every look
                    self._said = headline(error)
                    log.exception("look_failed", error=self._said)
            for pipeline_id in found or ():
                self.tell(pipeline_id)
            if found is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_over, RETRY)
        close_connection()  # its own, if it was lent none

    def _due(self, waiting: list[int]) -> set[int]:
        self._require()
        found: set[int] = statements().due(waiting)
        return found

    def _next(self) -> list[int] | None:
        """The pipelines to look at, once it is time; None at the end."""
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                if waiting := self._polls.take(now):
                    return waiting
                self._sleeps_until = self._polls.next_at()
                left = self._sleeps_until - now
                self._changed.wait(None if left == math.inf else min(left, threading.TIMEOUT_MAX))
        return None
