"""RabbitMQ: the broker keeps what was delivered until it is acknowledged, and has it back when a connection is lost."""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import amqp
from kombu import Connection

from engines.connectors.broker.lines import ANSWER_LIMIT, CONNECT_LIMIT
from engines.connectors.broker.messages import Delivery
from engines.core.errors import ConnectorError

HEARTBEAT = 30.0
BURST = 200
# After the first message the rest of a batch is on its way already.
LINGER = 0.005
PERSISTENT = 2
_CARRIED = ("content_type", "content_encoding", "message_id", "correlation_id", "timestamp", "type", "app_id")


class Publisher:
    """Sends in bursts, and waits until the broker has said of every message that it is safe."""

    def __init__(self, connection: Any, channel: Any) -> None:
        self._connection, self._channel = connection, channel
        self._sent = self._refused = 0
        self._unconfirmed: set[int] = set()
        channel.confirm_select()
        channel.events["basic_ack"].add(self._confirm)
        channel.events["basic_nack"].add(self._refuse)

    def send(self, queue: str, body: bytes, headers: Mapping[str, Any], **described: Any) -> None:
        """A message that no queue takes raises at the flush."""
        message = amqp.Message(body, application_headers=dict(headers), delivery_mode=PERSISTENT, **described)
        self._sent += 1
        self._unconfirmed.add(self._sent)
        self._channel.basic_publish(message, exchange="", routing_key=queue, mandatory=True)

    def flush(self) -> None:
        self._refused = 0
        while self._unconfirmed:
            self._connection.drain_events(timeout=ANSWER_LIMIT)
        if self._refused:
            msg = f"the broker did not take {self._refused} messages: is the queue full?"
            raise ConnectorError(msg)

    def _confirm(self, tag: int, multiple: bool) -> int:  # noqa: FBT001 (called by the library)
        confirmed = {one for one in self._unconfirmed if one <= tag} if multiple else {tag}
        self._unconfirmed -= confirmed
        return len(confirmed)

    def _refuse(self, tag: int, multiple: bool) -> None:  # noqa: FBT001 (called by the library)
        self._refused += self._confirm(tag, multiple)


class RabbitLine:
    """One channel. A consumer lives only while a batch is fetched, so that no message waits here that nobody asked for.

    `session` counts the connections: a tag of an earlier one means another message, or none, on this one.
    """

    broken: tuple[type[Exception], ...] = (amqp.AMQPError, OSError)
    refused: tuple[type[Exception], ...] = (amqp.AccessRefused, amqp.NotAllowed)
    tick = HEARTBEAT / 3

    def __init__(self, url: str, queue: str, dead: str) -> None:
        self._url, self._queue, self._dead = url, queue, dead
        self._connection: Any = None
        self._opened: Any = None
        self._publisher: Any = None
        self._session = 0
        self._wanted = self._prefetch = 0
        self._arrived: list[Delivery] = []
        self._unsettled: set[int] = set()

    def begin(self, count: int) -> None:
        channel = self._channel()
        if count != self._prefetch:
            # Counted for each consumer by itself: this one is sent so many and no more.
            channel.basic_qos(0, count, a_global=False)
            self._prefetch = count
        self._wanted = count
        channel.basic_consume(self._queue, consumer_tag="ergon", callback=self._arrive)

    def collect(self, seconds: float) -> list[Delivery]:
        with suppress(TimeoutError):
            self._connection.drain_events(timeout=seconds)
            while len(self._arrived) < self._wanted:
                self._connection.drain_events(timeout=LINGER)
        return self._take()

    def end(self) -> list[Delivery]:
        self._channel().basic_cancel("ergon")
        return self._take()

    def acknowledge(self, deliveries: Sequence[Delivery]) -> int:
        known = [delivery for delivery in deliveries if self._is_open(delivery)]
        for delivery in known:
            self._opened.basic_ack(delivery.tag)
            self._unsettled.discard(delivery.tag)
        return len(known)

    def bury(self, delivery: Delivery, headers: dict[str, str]) -> None:
        if self._is_open(delivery):
            carried = {name: value for name in _CARRIED if (value := delivery.properties.get(name)) is not None}
            self._publisher.send(self._dead, delivery.body, {**delivery.headers, **headers}, **carried)
            self._publisher.flush()
            self.acknowledge([delivery])

    def release(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if self._is_open(delivery):
                self._opened.basic_reject(delivery.tag, requeue=True)
                self._unsettled.discard(delivery.tag)

    def publish(self, messages: deque[tuple[str, str]]) -> None:
        self._channel()
        while burst := list(islice(messages, BURST)):
            for uid, text in burst:
                described = {"content_type": "application/json", "content_encoding": "utf-8", "message_id": uid[:255]}
                self._publisher.send(self._queue, text.encode(), {}, **described)
            self._publisher.flush()
            for _ in burst:
                messages.popleft()

    def count(self) -> int:
        self._channel()
        with self._connection.channel() as probe:
            return int(probe.queue_declare(self._queue, passive=True).message_count)

    def keep_alive(self) -> None:
        if self._opened is not None:
            with suppress(TimeoutError):
                self._connection.drain_events(timeout=0.001)
            self._connection.heartbeat_check()

    def drop(self) -> None:
        connection, self._connection, self._opened = self._connection, None, None
        self._arrived, self._prefetch = [], 0
        self._unsettled.clear()
        if connection is not None:
            with suppress(*self.broken):
                connection.collect()

    def close(self) -> None:
        if self._connection is not None:
            # The broker puts back what was not acknowledged.
            self._connection.close()
        self.drop()

    def __str__(self) -> str:
        return str(Connection(self._url).as_uri())

    def _channel(self) -> Any:
        if self._opened is None:
            self.drop()
            self._connection = Connection(self._url, heartbeat=HEARTBEAT, connect_timeout=CONNECT_LIMIT)
            self._connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
            channel = self._connection.channel()
            self._declare(channel, self._dead, {})
            dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self._dead}
            self._declare(channel, self._queue, dead_letters)
            channel.auto_decode = False
            self._publisher = Publisher(self._connection, channel)
            self._opened = channel
            self._session += 1
        return self._opened

    def _declare(self, channel: Any, name: str, arguments: dict[str, str]) -> None:
        """A queue that is there is used as it is, whoever made it and however."""
        try:
            with self._connection.channel() as probe:
                probe.queue_declare(name, passive=True)
        except amqp.NotFound:
            channel.queue_declare(name, durable=True, auto_delete=False, arguments=arguments)

    def _arrive(self, message: Any) -> None:
        properties = dict(message.properties)
        headers = properties.pop("application_headers", None) or {}
        tag = int(message.delivery_tag)
        self._unsettled.add(tag)
        self._arrived.append(
            Delivery(tag=tag, session=self._session, body=bytes(message.body), headers=headers, properties=properties)
        )

    def _take(self) -> list[Delivery]:
        arrived, self._arrived = self._arrived, []
        self._wanted -= len(arrived)
        return arrived

    def _is_open(self, delivery: Delivery) -> bool:
        """Whether the broker waits to hear of it, from this connection. Anything else it has taken back."""
        return delivery.session == self._session and delivery.tag in self._unsettled
