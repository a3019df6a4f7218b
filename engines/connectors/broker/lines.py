"""The interface that both kinds of brokers implement for the thread that owns a connection."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from engines.connectors.broker.messages import Delivery

CONNECT_LIMIT = 5.0
# How long a broker may be silent when it is asked something, and until it has said that what was published is safe.
SILENCE_LIMIT = 10.0
ANSWER_LIMIT = 30.0


class Line(Protocol):
    """A connection to one queue. It connects when it is first needed, and anew after `drop`."""

    broken: tuple[type[Exception], ...]
    """What it raises when it must be dropped; nothing is lost then."""

    refused: tuple[type[Exception], ...]
    """What it raises when trying again is pointless."""

    tick: float
    """How often to call `keep_alive`."""

    on_lost: Callable[[], None]
    """What it calls when deliveries have been lost: `is_ours` says which."""

    def begin(self, count: int) -> None:
        """Ask for so many messages."""

    def collect(self, seconds: float) -> list[Delivery]:
        """The deliveries so far; waits up to a limit for the first one."""

    def end(self) -> list[Delivery]:
        """Ask for no more; what had come in the meantime."""

    def is_ours(self, delivery: Delivery) -> bool | None:
        """Whether the delivery is unacknowledged and ours; None if only the broker knows. For any thread."""

    def confirm(self) -> None:
        """Ask the broker which deliveries are still ours: `is_ours` knows it afterwards."""

    def start(self, delivery: Delivery) -> bool:
        """Write down that one which came back before is now worked on, once; False if it is not ours any more."""

    def acknowledge(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Acknowledge deliveries. Returns those that the broker had taken back already."""

    def dead_letter(self, delivery: Delivery, headers: dict[str, str]) -> bool:
        """Move a delivery to the dead-letter queue. False if it is not ours any more."""

    def release(self, deliveries: Sequence[Delivery]) -> int:
        """Put them back where they were. How many of them were still ours."""

    def let_lapse(self, deliveries: Sequence[Delivery]) -> None:
        """Neither renew nor put back: they come back as from a process that has died."""

    def publish(self, messages: deque[tuple[str, str]]) -> None:
        """Ids and texts, in order; those that have arrived are taken out."""

    def count(self) -> int:
        """The number of waiting messages."""

    def keep_alive(self) -> None:
        """Send the broker a sign of life."""

    def drop(self) -> None:
        """Forget a connection that is broken."""

    def close(self) -> None:
        """Give everything back and leave in order."""

    def __str__(self) -> str:
        """The broker's address without its password."""
