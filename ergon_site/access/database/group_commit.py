"""Commits what several threads bring at the same time together: one of them writes for all."""

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from ergon_site.access.database import pooler
from ergon_site.access.database.calls import DatabaseTimeoutError, time_limit

Item = TypeVar("Item")
Result = TypeVar("Result")
T = TypeVar("T")

MOST_AT_ONCE = 1000
# How often somebody who waits looks whether anybody writes at all: a signal may end a thread anywhere.
LOOK_EVERY = 1.0


class CutOffError(OperationalError):
    """Nobody knows whether it was committed: the thread that wrote for all was broken off."""


class Ticket(Generic[Item, Result]):
    """Something to be written, and whoever waits for it."""

    __slots__ = ("error", "is_written", "item", "result", "turn", "wrote_itself")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.turn = threading.Lock()
        self.turn.acquire()
        self.is_written = False
        self.wrote_itself = False  # whoever waits for it is the one who wrote for all
        self.result: Result | None = None
        self.error: Exception | None = None

    def settle(self, result: Result | None, error: Exception | None) -> None:
        self.result, self.error, self.is_written = result, error, True


class Group(Generic[Item, Result]):
    """The first to come writes at once. Who comes meanwhile waits, and one of them writes for all who wait.

    Whoever writes holds a lock that ends with its block, whatever breaks that off. An item that was taken along and is
    not written when nobody writes any more was cut off.

    Who is done often comes back at once. Where many were written together, whoever writes next therefore waits up to
    `gather` seconds for them: otherwise one would write alone, and all others after it, in turn.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Sequence[Result]],
        alone: Callable[[Item, Exception], Result] | None = None,
        *,
        gather: float = 0.0,
    ) -> None:
        self._write = write
        self._gather_for = gather
        self._alone = alone  # writes one item after somebody else has failed to write it with others
        self._begin_anew()
        # A forked process has none of its parent's threads, and perhaps a held lock.
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[Ticket[Item, Result]] = []
        self._gathered = threading.Event()
        self._awaited = 0  # how many have to wait until they are gathered
        self._written, self._written_at = 0, -math.inf  # how many were written last, and when

    @property
    def is_writing(self) -> bool:
        return self._writing.locked()

    @property
    def waiting(self) -> int:
        """How many items nobody writes yet."""
        return len(self._waiting)

    def put(self, item: Item, timeout: float | None = None) -> Result:
        """Returns when it has been committed, or raises what kept it from that."""
        return self.complete(self.offer(item), timeout)

    def offer(self, item: Item) -> Ticket[Item, Result]:
        """Whoever writes next takes it along; `complete` must follow."""
        ticket: Ticket[Item, Result] = Ticket(item)
        with self._lock:
            self._waiting.append(ticket)
            if len(self._waiting) == self._awaited:
                self._gathered.set()
        return ticket

    def complete(self, ticket: Ticket[Item, Result], timeout: float | None = None) -> Result:
        """The result of what was offered; `timeout` bounds the wait for others who write."""
        try:
            self._wait(ticket, timeout)
        except BaseException:
            self._withdraw(ticket)
            raise
        if ticket.error is None:
            return ticket.result  # type: ignore[return-value]
        if ticket.wrote_itself or self._alone is None:
            raise ticket.error
        return self._alone(ticket.item, ticket.error)

    def _wait(self, ticket: Ticket[Item, Result], timeout: float | None) -> None:
        """Wait until it is written, by this thread or another, or until that has failed."""
        ends_at = math.inf if timeout is None else time.monotonic() + timeout
        while not ticket.is_written:
            if self._writing.locked():
                if timeout is not None and time.monotonic() >= ends_at:
                    raise DatabaseTimeoutError.after(timeout)
                ticket.turn.acquire(timeout=max(0.0, min(LOOK_EVERY, ends_at - time.monotonic())))
                continue
            written: list[Ticket[Item, Result]] = []
            try:
                with self._writing:
                    if not ticket.is_written:
                        self._lead(ticket, written)
            finally:
                self._wake(written)

    def _lead(self, ticket: Ticket[Item, Result], written: list[Ticket[Item, Result]]) -> None:
        """Write for all who wait, and say who they are."""
        self._gather()
        with self._lock:
            if ticket not in self._waiting:  # somebody took it along, and was broken off
                ticket.settle(None, _cut_off())
                return
            batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        written += batch
        ticket.wrote_itself = ticket in batch
        results: Sequence[Result | None] = [None] * len(batch)
        failure: Exception | None = _cut_off()
        try:
            results, failure = self._write([one.item for one in batch]), None
        except Exception as error:  # noqa: BLE001 (told to everybody who waits)
            failure = error
        finally:
            for one, result in zip(batch, results, strict=True):
                one.settle(result, failure)
            self._written, self._written_at = len(batch), time.monotonic()

    def _gather(self) -> None:
        """Wait a moment for those who have just been written, if only few others wait."""
        left = self._written_at + self._gather_for - time.monotonic()
        if left <= 0:
            return
        with self._lock:
            if len(self._waiting) * 2 >= self._written:
                return
            self._awaited = self._written
            self._gathered.clear()
        self._gathered.wait(left)
        self._awaited = 0

    def _wake(self, written: Sequence[Ticket[Item, Result]]) -> None:
        """The next one begins to write before those who are done wake up."""
        with self._lock:
            for one in (*self._waiting[:1], *written):
                if one.turn.locked():
                    one.turn.release()

    def _withdraw(self, ticket: Ticket[Item, Result]) -> None:
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
        self._wake([])


def _cut_off() -> CutOffError:
    return CutOffError("the thread that wrote for all was broken off; whether anything was committed is unknown")


class Lane:
    """A connection of the group's own: whichever thread leads uses it, one at a time, so that it is always warm."""

    def __init__(self) -> None:
        self._wrapper: BaseDatabaseWrapper | None = None

    def carry_out(self, work: Callable[[BaseDatabaseWrapper], T], *, limit: float | None = None) -> T:
        """Carry out what may be carried out twice; a connection that was lost, or is silent, is made anew."""
        while True:
            is_new = self._wrapper is None
            if self._wrapper is None:
                self._wrapper = connection.copy()
                self._wrapper.inc_thread_sharing()
            carried = partial(work, self._wrapper)
            try:
                with time_limit(limit, self._wrapper):
                    return pooler.carry_out(self._wrapper, carried, carried)
            except OperationalError:
                self.close()
                if is_new:
                    raise

    def close(self) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            wrapper.close()
