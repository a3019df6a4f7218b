"""The connector: any thread and any event loop may use it; a thread of its own takes and settles, another publishes."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engines import telemetry
from engines.connectors.base import Connector, OnDead, OnLost
from engines.connectors.broker.lines import ANSWER_LIMIT, Line
from engines.connectors.broker.messages import (
    Delivery,
    MalformedMessageError,
    delivery_of,
    error_headers,
    stand_in,
    transaction_in,
)
from engines.connectors.broker.owner import Owner, log
from engines.core.errors import ConnectorError, PoisonError, UnreachableError
from engines.core.outcome import Failure, Outcome
from engines.drivers.attempts import current_attempt
from engines.tasks.transaction import Transaction

if TYPE_CHECKING:
    from concurrent.futures import Future

# What AMQP can say, with room for the ending of a dead-letter queue.
LONGEST_NAME = 250
MOST_AT_ONCE = 65_535
# How long a fetch waits for a broker that is away, where that is waited out, before it says that there is nothing yet.
NOTHING_YET = 2.0
# How long before the end of an attempt its publishing is given up, so that it can tell why.
IN_TIME = 0.5


class BrokerConnector(Connector):
    """Takes transactions from a queue of RabbitMQ, Redis or Valkey, and publishes into it; threaded and async.

    A message is acknowledged once its outcome is final. One whose transaction has failed, or that holds none, goes to
    the dead-letter queue with the error in its headers; `on_dead` is told before. Delivery is at least once: what a
    process had in hand when it died, or when its connection was lost, comes back. On RabbitMQ that is at once; on Redis
    and Valkey after `lease` seconds, which are renewed for as long as the process lives. A message that has cost
    several workers is not run again, but becomes a dead letter.

    What another worker may have been given meanwhile is not begun, and its outcome is told to nobody: `acknowledge`
    returns False then.
    """

    is_prefetching = True
    reports_failures = True

    def __init__(  # noqa: PLR0913 (each has a default that is right until somebody measures)
        self,
        url: str,
        queue: str,
        *,
        dead_letter_queue: str | None = None,
        prefetch: int = 1000,
        wait: float = 1.0,
        patience: float = 30.0,
        lease: float = 60.0,
        on_dead: OnDead | None = None,
    ) -> None:
        """`prefetch`: the most that one fetch takes; `wait`: how long it waits for the first message.

        `patience`: how long a broker that does not answer is tried again before the call fails.
        """
        if not 0 < len(queue.encode()) <= LONGEST_NAME or not 0 < prefetch <= MOST_AT_ONCE:
            msg = f"a queue's name has 1 to {LONGEST_NAME} bytes, and one fetch takes 1 to {MOST_AT_ONCE:,} messages"
            raise ValueError(msg)
        self._queue, self._prefetch, self._wait = queue, prefetch, wait
        self.on_dead = on_dead
        dead = dead_letter_queue or f"{queue}.dead"
        line = _line(url, queue, dead, lease)
        line.on_lost = self._tell_of_the_lost
        self._owner = Owner(line, patience=patience)
        # A broker that is full reads nothing more from a connection that publishes, not even outcomes.
        self._publisher = Owner(_line(url, queue, dead, lease), patience=patience)
        self._in_hand: dict[Delivery, Transaction] = {}
        self._on_lost: OnLost | None = None
        self._fetching = threading.Lock()
        self._on_its_way: Future[list[Delivery]] | None = None

    def wait_out_outages(self) -> None:
        """Wait for a broker that is away until somebody wants an end; a fetch comes back empty meanwhile."""
        self._owner.patience = self._publisher.patience = None

    def fetch_transactions(self, batch_size: int, **_extra: Any) -> list[Transaction]:
        """The next ones. Messages that are no transactions become dead letters, and do not make a batch empty."""
        batch: list[Transaction] = []
        while not batch and (deliveries := self._take(min(batch_size, self._prefetch))):
            refused: list[tuple[Delivery, MalformedMessageError | PoisonError]] = []
            for delivery in deliveries:
                try:
                    batch.append(transaction_in(delivery))
                except (MalformedMessageError, PoisonError) as error:
                    refused.append((delivery, error))
            self._bury_refused(refused, batch)
        self._in_hand.update((delivery_of(transaction), transaction) for transaction in batch)
        return batch

    def is_lost(self, transaction: Transaction) -> bool:
        return self._owner.is_lost(delivery_of(transaction))

    def on_lost(self, callback: OnLost | None) -> None:
        self._on_lost = callback

    def begin(self, transaction: Transaction) -> bool:
        """Whether a handler may start: not if the broker may have given the message to another worker."""
        return self._owner.start(delivery_of(transaction))

    def dispatch_transactions(self, transactions: Sequence[Transaction]) -> int:
        """Publish them; they are with the broker when this returns. In a handler it takes no longer than that may."""
        messages = deque((transaction.id, transaction.to_json()) for transaction in transactions)
        left = current_attempt().remaining
        bound = None if left is None else max(0.0, left - IN_TIME)
        shorter = min((one for one in (bound, self._publisher.patience) if one is not None), default=None)
        asked = self._publisher.ask(lambda line: line.publish(messages), patience=shorter)
        try:
            self._publisher.answer(asked, limit=bound)
        except UnreachableError:
            asked.cancel()  # if it has not begun, it is not to happen later
            raise
        return len(transactions)

    def acknowledge(self, transaction: Transaction, outcome: Outcome) -> bool:
        """Its outcome is final: the broker may forget it, or keep it among the dead.

        False if the broker has given it to somebody else meanwhile: then nothing is kept or told.
        """
        delivery = delivery_of(transaction)
        self._in_hand.pop(delivery, None)
        if isinstance(outcome, Failure):
            return self._bury(transaction, delivery, outcome)
        return bool(self._owner.answer(self._owner.acknowledge(delivery)))

    def release(self, transactions: Sequence[Transaction]) -> None:
        """Put them back where they were, as if nobody had taken them."""
        deliveries = [delivery_of(transaction) for transaction in transactions]
        for delivery in deliveries:
            self._in_hand.pop(delivery, None)
        self.given_back += self._put_back(deliveries)

    def let_lapse(self, transactions: Sequence[Transaction]) -> None:
        deliveries = [delivery_of(transaction) for transaction in transactions]
        for delivery in deliveries:
            self._in_hand.pop(delivery, None)
        with suppress(ConnectorError):  # it is closed
            self._owner.ask(lambda line: line.let_lapse(deliveries))

    def flush(self) -> None:
        self._owner.flush()

    def count(self) -> int:
        return int(self._owner.answer(self._owner.ask(lambda line: line.count())))

    def interrupt(self) -> None:
        self._owner.interrupt()

    def give_up(self) -> None:
        self._owner.give_up()
        self._publisher.give_up()

    def close(self) -> None:
        """Give back what is in hand and leave."""
        self._publisher.give_up()
        self._owner.close()
        self._publisher.close()

    async def begin_async(self, transaction: Transaction) -> bool:
        may_start = self._owner.may_start_at_once(delivery_of(transaction))
        return may_start or await asyncio.to_thread(self.begin, transaction)

    async def acknowledge_async(self, transaction: Transaction, outcome: Outcome) -> bool:
        if isinstance(outcome, Failure):
            # Whoever is told of the dead may take their time over it.
            return await asyncio.to_thread(self.acknowledge, transaction, outcome)
        delivery = delivery_of(transaction)
        self._in_hand.pop(delivery, None)
        return await asyncio.shield(asyncio.wrap_future(self._owner.acknowledge(delivery)))

    async def close_async(self) -> None:
        await asyncio.to_thread(self.close)

    def _take(self, count: int) -> list[Delivery]:
        with self._fetching:
            asked, self._on_its_way = self._on_its_way, None
        asked = asked or self._owner.take(count, self._wait)
        patience = self._owner.patience
        limit = self._wait + (NOTHING_YET if patience is None else patience + 2 * ANSWER_LIMIT)
        try:
            taken: list[Delivery] = self._owner.answer(asked, limit=limit, unwanted=self._owner.hurry)
        except UnreachableError:
            if patience is None and not self._owner.hurry.is_set():
                # Whoever fetches next goes on waiting for it.
                self._on_its_way = asked
                return []
            asked.add_done_callback(self._put_back_unseen)
            if self._owner.hurry.is_set():
                return []
            raise
        except BaseException:
            asked.add_done_callback(self._put_back_unseen)
            raise
        if len(taken) > count:  # asked for when more were wanted
            self._put_back(taken[count:])
        return taken[:count]

    def _bury_refused(
        self, refused: list[tuple[Delivery, MalformedMessageError | PoisonError]], batch: Sequence[Transaction]
    ) -> None:
        while refused:
            delivery, error = refused[0]
            log.warning("message_is_not_run", queue=self._queue, error=str(error))
            try:
                self._bury(stand_in(delivery), delivery, Failure(error))
            except BaseException:
                self._put_back([delivery for delivery, _ in refused] + [delivery_of(one) for one in batch])
                raise
            refused.pop(0)

    def _bury(self, transaction: Transaction, delivery: Delivery, failure: Failure) -> bool:
        # Told first: if this process ends in between, the message comes back and is told of again, never the reverse.
        # But not by whoever has lost it: another worker tells how it ends.
        is_ours = self._owner.confirm(delivery)
        if is_ours:
            if self.on_dead is not None:
                self.on_dead(transaction, failure)
            is_ours = self._owner.answer(
                self._owner.ask(lambda line: line.dead_letter(delivery, error_headers(failure)))
            )
        if not is_ours:
            telemetry.stale.add(1)
        return is_ours

    def _tell_of_the_lost(self) -> None:
        lost = [delivery for delivery in list(self._in_hand) if self._owner.is_lost(delivery)]
        transactions = [self._in_hand.pop(delivery) for delivery in lost if delivery in self._in_hand]
        if transactions and (tell := self._on_lost) is not None:
            tell(transactions)

    def _put_back(self, deliveries: Sequence[Delivery]) -> int:
        return int(self._owner.answer(self._owner.ask(lambda line: line.release(deliveries))))

    def _put_back_unseen(self, asked: "Future[list[Delivery]]") -> None:
        if not asked.cancelled() and asked.exception() is None:
            self._put_back_some_time(asked.result())

    def _release_late(self, fetching: "asyncio.Future[Sequence[Transaction]]") -> None:
        if not fetching.cancelled() and fetching.exception() is None:
            self._put_back_some_time([delivery_of(transaction) for transaction in fetching.result()])

    def _put_back_some_time(self, deliveries: Sequence[Delivery]) -> None:
        with suppress(ConnectorError):  # closed, and with that everything is given back
            self._owner.ask(lambda line: line.release(deliveries))


def _line(url: str, queue: str, dead: str, lease: float) -> Line:
    # Loaded when they are used: each brings the library of its broker.
    match urlsplit(url).scheme:
        case "amqp" | "amqps":
            from engines.connectors.broker.on_rabbitmq import RabbitLine  # noqa: PLC0415

            return RabbitLine(url, queue, dead)
        case "redis" | "rediss":
            from engines.connectors.broker.on_redis import RedisLine  # noqa: PLC0415

            return RedisLine(url, queue, dead, lease=lease)
    msg = "a broker's address starts with amqp://, amqps://, redis:// or rediss://"
    raise ValueError(msg)
