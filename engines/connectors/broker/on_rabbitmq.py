"""RabbitMQ: the broker keeps what was delivered until it is acknowledged, and has it back when a connection is lost."""

import select
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any
from uuid import uuid4

import amqp
import structlog
from kombu import Connection

from engines.connectors.broker.frames import UNREADABLE, has_room, read_frames
from engines.connectors.broker.lines import ANSWER_LIMIT, CONNECT_LIMIT, SILENCE_LIMIT
from engines.connectors.broker.messages import Delivery, Tag
from engines.connectors.freshness import age, now
from engines.core.errors import ConnectorError

log = structlog.get_logger("ergon.broker")

HEARTBEAT = 30.0
BURST = 200
# After the first message the rest of a batch is on its way already.
LINGER = 0.005
PERSISTENT = 2
_CARRIED = ("content_type", "content_encoding", "message_id", "correlation_id", "timestamp", "type", "app_id")
# For how long what the broker has said of a connection need not be asked again.
TRUSTED = 1.0
# What a closed connection tells, even while there is something left to read from it; Linux alone has it.
CLOSED = getattr(select, "POLLRDHUP", 0)
# How often a message has been started after it had come back; and what tells one copy of it from another.
STARTS, COPY = "ergon-starts", "ergon-copy"


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

    def send_on(self, queue: str, delivery: Delivery, headers: Mapping[str, Any], *properties: str) -> None:
        """Send a message that was delivered to another queue, without its own headers where they leave no room."""
        all_headers = {**delivery.headers, **headers}
        if delivery.headers and not has_room(self._channel.connection, all_headers):
            log.warning("headers_left_out", queue=queue, message=delivery.properties.get("message_id"))
            all_headers = dict(headers)
        self.send(queue, delivery.body, all_headers, **carried_by(delivery, *properties))

    def flush(self) -> None:
        while self._unconfirmed:
            self._connection.drain_events(timeout=ANSWER_LIMIT)
        # Some may have been refused while others were sent: the library looks for answers before it sends.
        refused, self._refused = self._refused, 0
        if refused:
            msg = f"the broker refused {refused} messages: is the queue full?"
            raise ConnectorError(msg)

    def _confirm(self, tag: int, multiple: bool) -> int:  # noqa: FBT001 (called by the library)
        confirmed = {one for one in self._unconfirmed if one <= tag} if multiple else {tag}
        self._unconfirmed -= confirmed
        return len(confirmed)

    def _refuse(self, tag: int, multiple: bool) -> None:  # noqa: FBT001 (called by the library)
        self._refused += self._confirm(tag, multiple)


def carried_by(delivery: Delivery, *more: str) -> dict[str, Any]:
    """The properties that a copy of a message takes over."""
    found = {name: delivery.properties.get(name) for name in (*_CARRIED, *more)}
    return {name: value for name, value in found.items() if value is not None}


class Workbench:
    """A queue of our own for messages that came back before: each is worked on as a copy that counts its starts.

    RabbitMQ does not say how often it has delivered a message of a classic queue, and of a quorum queue it counts those
    that nobody had begun. The copy belongs to this connection; if that is lost, it expires back into the queue.
    """

    def __init__(self, connection: Any, publisher: Publisher, queue: str) -> None:
        self._connection, self._publisher = connection, publisher
        self._name = f"ergon.started.{uuid4()}"
        self._copies: dict[str, int] = {}
        self.channel = connection.channel()
        back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
        ends = {"x-message-ttl": 1000, "x-expires": 300_000}
        self.channel.queue_declare(self._name, durable=True, auto_delete=False, arguments={**back, **ends})
        self.channel.auto_decode = False
        self.channel.basic_consume(self._name, callback=self._arrive)

    def copy(self, delivery: Delivery) -> int:
        """The tag of its copy, which the broker has delivered on our channel."""
        name = str(uuid4())
        headers = {STARTS: delivery.returns + 1, COPY: name}
        self._publisher.send_on(self._name, delivery, headers, "priority", "reply_to")
        self._publisher.flush()
        while name not in self._copies:
            self._connection.drain_events(timeout=SILENCE_LIMIT)
        return self._copies.pop(name)

    def _arrive(self, message: Any) -> None:
        name = message.properties.get("application_headers", {}).get(COPY)
        self._copies[str(name)] = int(message.delivery_tag)


class RabbitLine:
    """A RabbitMQ channel. A consumer lives only while a batch is fetched, so that no message waits here unasked.

    `session` counts the connections: a tag of an earlier one means another message, or none, on this one.
    """

    broken: tuple[type[Exception], ...] = (amqp.AMQPError, OSError)
    refused: tuple[type[Exception], ...] = (amqp.AccessRefused, amqp.NotAllowed)
    tick = HEARTBEAT / 3

    def __init__(self, url: str, queue: str, dead: str) -> None:
        self._url, self._queue, self._dead = url, queue, dead
        self.on_lost: Callable[[], None] = lambda: None
        self._connection: Any = None
        self._socket: socket.socket | None = None
        self._opened: Any = None
        self._publisher: Any = None
        self._session = 0
        self._wanted = self._prefetch = 0
        self._arrived: list[Delivery] = []
        # By tag of the delivery: on which channel, and with which tag there, it is settled.
        self._unsettled: dict[Tag, tuple[Any, int]] = {}
        self._heard_at = now()
        self._workbench: Workbench | None = None
        self._may_count = True

    def begin(self, count: int) -> None:
        channel = self._channel()
        if count != self._prefetch:
            # Counted for each consumer by itself: this one is sent so many and no more.
            channel.basic_qos(0, count, a_global=False)
            self._prefetch = count
        self._wanted = count
        asked_at = now()
        channel.basic_consume(self._queue, consumer_tag="ergon", callback=self._arrive)
        self._heard_at = asked_at

    def collect(self, seconds: float) -> list[Delivery]:
        with suppress(TimeoutError):
            self._connection.drain_events(timeout=seconds)
            while len(self._arrived) < self._wanted:
                self._connection.drain_events(timeout=LINGER)
        return self._take()

    def end(self) -> list[Delivery]:
        asked_at = now()
        self._channel().basic_cancel("ergon")
        self._heard_at = asked_at
        return self._take()

    def is_ours(self, delivery: Delivery) -> bool | None:
        if not self._is_open(delivery):
            return False
        return True if self._is_known() else None

    def confirm(self) -> None:
        asked_at = now()
        # Anything that is answered will do.
        self._channel().basic_qos(0, self._prefetch, a_global=False)
        self._heard_at = asked_at

    def start(self, delivery: Delivery) -> bool:
        if not self._is_open(delivery) or not self._may_count:
            return self._is_open(delivery)
        channel, tag = self._unsettled[delivery.tag]
        if channel is self._opened and (workbench := self._open_workbench()) is not None:
            self._unsettled[delivery.tag] = workbench.channel, workbench.copy(delivery)
            channel.basic_ack(tag)
        return self._is_open(delivery)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        if not self._is_known() and any(map(self._is_open, deliveries)):
            self.confirm()
        late = [delivery for delivery in deliveries if not self._is_open(delivery)]
        for delivery in deliveries:
            if self._is_open(delivery):
                channel, tag = self._unsettled[delivery.tag]
                channel.basic_ack(tag)
                del self._unsettled[delivery.tag]
        return late

    def dead_letter(self, delivery: Delivery, headers: dict[str, str]) -> bool:
        if not self._is_open(delivery):
            return False
        self._publisher.send_on(self._dead, delivery, headers)
        self._publisher.flush()
        return not self.acknowledge([delivery])

    def release(self, deliveries: Sequence[Delivery]) -> int:
        ours = [delivery for delivery in deliveries if self._is_open(delivery)]
        for delivery in ours:
            channel, tag = self._unsettled.pop(delivery.tag)
            channel.basic_reject(tag, requeue=True)
        return len(ours)

    def let_lapse(self, deliveries: Sequence[Delivery]) -> None:
        """They come back when the connection ends."""

    def publish(self, messages: deque[tuple[str, str]]) -> None:
        self._channel()
        while burst := list(islice(messages, BURST)):
            for uid, text in burst:
                described = {"content_type": "application/json", "content_encoding": "utf-8"}
                self._publisher.send(self._queue, text.encode(), {}, message_id=_short(uid), **described)
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
        self._arrived, self._prefetch, self._workbench = [], 0, None
        has_lost = bool(self._unsettled)
        self._unsettled.clear()
        if connection is not None:
            with suppress(*self.broken):
                connection.collect()
        if has_lost:
            self.on_lost()

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
            limits: dict[str, Any] = {"heartbeat": HEARTBEAT, "connect_timeout": CONNECT_LIMIT}
            self._connection = Connection(self._url, transport_options={"frame_handler": read_frames}, **limits)
            self._connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
            # A broker that has fallen silent is noticed wherever an answer is waited for.
            self._socket = self._connection.connection.transport.sock
            self._socket.settimeout(SILENCE_LIMIT)
            channel = self._connection.channel()
            self._declare(channel, self._dead, {})
            dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self._dead}
            self._declare(channel, self._queue, dead_letters)
            channel.auto_decode = False
            self._publisher = Publisher(self._connection, channel)
            self._session += 1
            self._heard_at = now()
            self._opened = channel
        return self._opened

    def _open_workbench(self) -> Workbench | None:
        if self._workbench is None:
            try:
                self._workbench = Workbench(self._connection, self._publisher, self._queue)
            except amqp.AccessRefused:
                self._may_count = False
                hint = "let this user configure, read and write queues named ergon.started.*"
                log.warning("starts_are_not_counted", broker=str(self), hint=hint)
        return self._workbench

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
        headers.pop(COPY, None)
        fault = str(headers.pop(UNREADABLE, ""))
        tag, counted = int(message.delivery_tag), headers.get(STARTS)
        starts = counted if isinstance(counted, int) else 0
        self._unsettled[tag] = self._opened, tag
        self._arrived.append(
            Delivery(
                tag=tag,
                session=self._session,
                body=bytes(message.body),
                headers=headers,
                properties=properties,
                fault=fault,
                returns=starts,
                is_suspect=starts > 0 or bool(message.delivery_info.get("redelivered")),
            )
        )

    def _take(self) -> list[Delivery]:
        arrived, self._arrived = self._arrived, []
        self._wanted -= len(arrived)
        return arrived

    def _is_known(self) -> bool:
        """Whether what the broker said last still holds: it was just now, and it has not closed the connection since.

        It takes nothing back before: for a worker that is only cut off it waits, much longer than this.
        """
        return age(self._heard_at) < TRUSTED and not _is_closed(self._socket)

    def _is_open(self, delivery: Delivery) -> bool:
        """Whether a delivery is unacknowledged on this connection. The broker has taken back all others."""
        return delivery.session == self._session and delivery.tag in self._unsettled


def _short(uid: str) -> str:
    """An id as a property of a message, in which AMQP has room for 255 bytes; the body holds all of it."""
    return uid.encode("utf-8", "replace")[:255].decode("utf-8", "ignore")


def _is_closed(line: socket.socket | None) -> bool:
    """Whether the other end has closed a connection; asked by any thread, also while another one reads from it."""
    watch = select.poll()
    try:
        watch.register(line, CLOSED)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # this end has
        return True
    return bool(watch.poll(0))
