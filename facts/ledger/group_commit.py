"""Commits what several threads bring at the same time together: one of them writes for all."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

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
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value]

    def _lead(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        try:
            results = self._write([ticket.item for ticket in batch])
        except BaseException as error:  # noqa: BLE001 (told to everybody who waits)
            self._pass_on()
            _tell(batch, error)
            return
        self._pass_on()
        for ticket, result in zip(batch, results, strict=True):
            ticket.result = result
            ticket.is_written = True
            ticket.turn.release()

    def _pass_on(self) -> None:
        """The next one begins to write before those who are done wake up."""
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._is_led = following is not None
        if following is not None:
            following.turn.release()


def _tell(batch: "Sequence[Ticket[Item, Result]]", error: BaseException) -> None:
    for ticket in batch:
        ticket.error, ticket.is_written = error, True
        ticket.turn.release()
