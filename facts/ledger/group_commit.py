"""Commits what several threads bring at the same time together: one of them writes for all."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from ergon_site.access.database import pooler

Item = TypeVar("Item")
Result = TypeVar("Result")
T = TypeVar("T")

MOST_AT_ONCE = 1000


class Ticket(Generic[Item, Result]):
    """Something to be written, and whoever waits for it."""

    __slots__ = ("error", "is_written", "item", "result", "turn")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.turn = threading.Lock()
        self.turn.acquire()
        self.is_written = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class Group(Generic[Item, Result]):
    """The first to come writes at once. Who comes meanwhile waits, and one of them writes for all who wait."""

    def __init__(self, write: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[Ticket[Item, Result]] = []
        self._is_led = False

    def put(self, item: Item) -> Result:
        """Returns when it has been committed, or raises what kept it from that."""
        ticket: Ticket[Item, Result] = Ticket(item)
        with self._lock:
            self._waiting.append(ticket)
            leads, self._is_led = not self._is_led, True
        if not leads:
            ticket.turn.acquire()
        if not ticket.is_written:
            with self._lock:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            results: Sequence[Result | None] = [None] * len(batch)
            failure: BaseException | None = None
            try:
                results = self._write([one.item for one in batch])
            except BaseException as error:  # noqa: BLE001 (told to everybody who waits)
                failure = error
            self._pass_on()
            for one, result in zip(batch, results, strict=True):
                one.result, one.error, one.is_written = result, failure, True
                one.turn.release()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value]

    def _pass_on(self) -> None:
        """The next one begins to write before those who are done wake up."""
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._is_led = following is not None
        if following is not None:
            following.turn.release()


class Lane:
    """A connection of the group's own: whichever thread leads uses it, one at a time, so that it is always warm."""

    def __init__(self) -> None:
        self._wrapper: BaseDatabaseWrapper | None = None

    def carry_out(self, work: Callable[[BaseDatabaseWrapper], T]) -> T:
        """Carry out what may be carried out twice; a connection that was lost is made anew."""
        while True:
            is_new = self._wrapper is None
            if self._wrapper is None:
                self._wrapper = connection.copy()
                self._wrapper.inc_thread_sharing()
            carried = partial(work, self._wrapper)
            try:
                return pooler.carry_out(self._wrapper, carried, carried)
            except OperationalError:
                self.close()
                if is_new:
                    raise

    def close(self) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            wrapper.close()
