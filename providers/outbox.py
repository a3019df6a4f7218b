"""Publishes dead letters to `queue.deadletter`: plain JSON for whoever listens.

Each row is locked while it is sent, so that no two send it; whoever dies in between leaves it to be sent again, with
the same message id. It is tried when a task has ended, and by a chore of `maintain`; without a broker, rows wait.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.db import DatabaseError, connection
from django.db.models import F
from django.db.models.functions import Now
from kombu import Connection, Producer, Queue

from ergon_site.access.brokers import SHORT_LIMIT, connected, transport_options
from ergon_site.access.database.calls import short_transaction
from providers.conf import settings
from providers.models import OutboxLetter

QUEUE = "queue.deadletter"
BATCH = 500
PERSISTENT = 2
LONGEST_PROPERTY = 255

log = structlog.get_logger("ergon.providers")


def publish(*, limit: int = BATCH, broker_url: str | None = None) -> int:
    """Send what waits, oldest first; how many were sent. A broker that is away is tried again the next time."""
    url = broker_url or settings().broker_url
    if url is None or not _waiting().exists():
        return 0
    with _producing(url) as producer:
        for count in range(limit):
            if not _send_next(producer):
                return count
    return limit


def publish_at_once() -> None:
    """The same by whoever has just left a letter; that it cannot be sent is no trouble of theirs."""
    try:
        publish()
    except Exception as error:  # noqa: BLE001 (of the broker's library, its transport or the database)
        log.warning("dead letters wait", error_type=type(error).__name__)


def _send_next(producer: Any) -> bool:
    """Send the oldest letter that nobody else is sending, those last that could not be sent before; if there is one."""
    letter: OutboxLetter | None = None
    try:
        with short_transaction():
            # The usual query has an index.
            letter = _locked(_waiting().filter(failures=0).order_by("pk"))
            letter = letter or _locked(_waiting().order_by("failures", "pk"))
            if letter is None:
                return False
            _send(producer, letter)
            _waiting().filter(pk=letter.pk).update(published_at=Now())
    except Exception as error:
        if letter is not None and not isinstance(error, DatabaseError):
            _waiting().filter(pk=letter.pk).update(failures=F("failures") + 1)
        raise
    return True


def _send(producer: Any, letter: OutboxLetter) -> None:
    correlation_id = letter.payload["correlation_id"]
    producer.publish(
        json.dumps(letter.payload).encode(),
        routing_key=QUEUE,
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=PERSISTENT,
        message_id=str(letter.pk),
        # It is in the body; as a property it is for those that AMQP can hold there.
        correlation_id=correlation_id if len(correlation_id.encode()) <= LONGEST_PROPERTY else None,
    )


def _waiting() -> Any:
    return OutboxLetter.objects.filter(published_at__isnull=True)


def _locked(rows: Any) -> OutboxLetter | None:
    # SQLite has one writer at a time: there the transaction itself is the lock.
    can_lock = connection.features.has_select_for_update
    letter: OutboxLetter | None = (rows.select_for_update(skip_locked=True) if can_lock else rows).first()
    return letter


@contextmanager
def _producing(url: str) -> Iterator[Any]:
    """A connection that is up before any row is locked."""
    options = transport_options(url, SHORT_LIMIT)
    with connected(Connection(url, connect_timeout=SHORT_LIMIT, transport_options=options)) as line:
        # The queue is made unless it is there: whoever listens may have made it in another way.
        try:
            with line.channel() as channel:
                channel.queue_declare(QUEUE, passive=True)
        except line.channel_errors:
            with line.channel() as channel:
                Queue(QUEUE, durable=True)(channel).declare()
        yield Producer(line.channel())
