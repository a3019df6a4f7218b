"""Redis and Valkey: what is taken is kept beside the queue under a lease, and goes back when nobody renews it.

The consumer of kombu takes a message off the list first and writes down afterwards that it did: a process that ends in
between loses it. Here both are one script. Messages are in kombu's format, so that its producers can write them.
"""

import json
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any
from uuid import uuid4

import redis
from kombu import Connection, Producer

from engines.connectors.broker.lines import ANSWER_LIMIT, CONNECT_LIMIT
from engines.connectors.broker.messages import Delivery

ROUND_TRIP = 1000
PERSISTENT = 2
_NOW = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
"""
_PUT_BACK = """
local function put_back(tag)
  local item = redis.call('HGET', KEYS[1], tag)
  redis.call('HDEL', KEYS[1], tag)
  redis.call('ZREM', KEYS[2], tag)
  if item then redis.call('RPUSH', KEYS[3], item) end
end
"""

# KEYS: what is held, until when, the queue's list, the last tag, and then the queue's lists by priority.
TAKE = f"""{_NOW}{_PUT_BACK}
local lapsed = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)
for place = #lapsed, 1, -1 do put_back(lapsed[place]) end
local taken = {{}}
for place = 5, #KEYS do
  while #taken < 2 * tonumber(ARGV[1]) do
    local item = redis.call('RPOP', KEYS[place])
    if not item then break end
    local tag
    repeat tag = redis.call('INCR', KEYS[4]) until redis.call('HSETNX', KEYS[1], tag, item) == 1
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[2]), tag)
    taken[#taken + 1] = tag
    taken[#taken + 1] = item
  end
end
return taken
"""
RELEASE = f"""{_PUT_BACK}
for place = #ARGV, 1, -1 do put_back(ARGV[place]) end
"""
# KEYS[3] is the dead-letter queue. Who has lost the lease buries nothing.
BURY = """
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('LPUSH', KEYS[3], ARGV[2])
end
"""
RENEW = f"""{_NOW}
for place = 2, #ARGV do
  redis.call('ZADD', KEYS[2], 'XX', now + tonumber(ARGV[1]), ARGV[place])
end
"""


class RedisLine:
    """One connection. Leases belong to the messages, not to it: they outlive its loss."""

    broken: tuple[type[Exception], ...] = (redis.RedisError, OSError)
    refused: tuple[type[Exception], ...] = (redis.AuthenticationError, redis.exceptions.NoPermissionError)

    def __init__(self, url: str, queue: str, dead: str, *, lease: float) -> None:
        self._url, self._queue, self._dead, self._lease = url, queue, dead, lease
        self.tick = lease / 3
        self._kept = [f"ergon:held:{queue}", f"ergon:held_until:{queue}"]
        self._connection: Any = None
        self._opened: Any = None
        self._speaking: Any = None
        self._leaving = ExitStack()
        self._held: dict[int, None] = {}
        self._wanted = 0

    def begin(self, count: int) -> None:
        self._wanted = count

    def collect(self, seconds: float) -> list[Delivery]:
        keys = [*self._kept, self._queue, f"ergon:tag:{self._queue}", *self._lists()]
        taken = self._run(TAKE, keys, self._wanted, self._lease)
        if not taken:
            time.sleep(seconds)
        found = [_delivery(tag, item) for tag, item in zip(taken[::2], taken[1::2], strict=True)]
        self._held.update((delivery.tag, None) for delivery in found)
        return found

    def end(self) -> list[Delivery]:
        return []

    def acknowledge(self, deliveries: Sequence[Delivery]) -> int:
        tags = [delivery.tag for delivery in deliveries]
        with self._client().pipeline() as pipe:
            known, _ = pipe.hdel(self._kept[0], *tags).zrem(self._kept[1], *tags).execute()
        self._let_go(tags)
        return int(known)

    def bury(self, delivery: Delivery, headers: dict[str, str]) -> None:
        self._run(BURY, [*self._kept, self._dead], delivery.tag, _dead_item(delivery, headers, self._dead))
        self._let_go([delivery.tag])

    def release(self, deliveries: Sequence[Delivery]) -> None:
        self._put_back([delivery.tag for delivery in deliveries])

    def publish(self, messages: deque[tuple[str, str]]) -> None:
        producer = Producer(self._channel(), routing_key=self._queue)
        described = {"content_type": "application/json", "content_encoding": "utf-8", "delivery_mode": PERSISTENT}
        while burst := list(islice(messages, ROUND_TRIP)):
            with producer.batch(max_size=ROUND_TRIP):
                for uid, text in burst:
                    producer.publish(text, message_id=uid, **described)
            for _ in burst:
                messages.popleft()

    def count(self) -> int:
        return sum(int(self._client().llen(name)) for name in self._lists())

    def keep_alive(self) -> None:
        if self._held:
            self._run(RENEW, self._kept, self._lease, *self._held)

    def drop(self) -> None:
        connection, self._connection, self._opened = self._connection, None, None
        self._leaving.close()
        if connection is not None:
            with suppress(*self.broken):
                connection.release()

    def close(self) -> None:
        if self._held:
            self._put_back(list(self._held))
        self.drop()

    def __str__(self) -> str:
        return str(Connection(self._url).as_uri())

    def _put_back(self, tags: list[int]) -> None:
        if tags:
            self._run(RELEASE, [*self._kept, self._queue], *tags)
            self._let_go(tags)

    def _let_go(self, tags: Iterable[int]) -> None:
        for tag in tags:
            self._held.pop(tag, None)

    def _run(self, script: str, keys: list[str], *arguments: Any) -> Any:
        return self._client().eval(script, len(keys), *keys, *arguments)

    def _client(self) -> Any:
        self._channel()
        return self._speaking

    def _lists(self) -> list[str]:
        """A list for each of the few steps of priority that kombu knows."""
        channel = self._channel()
        return [f"{self._queue}{channel.sep}{step}" if step else self._queue for step in channel.priority_steps]

    def _channel(self) -> Any:
        if self._opened is None:
            self.drop()
            limits = {"socket_timeout": ANSWER_LIMIT, "socket_connect_timeout": CONNECT_LIMIT}
            self._connection = Connection(self._url, transport_options=limits)
            self._connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
            channel = self._connection.channel()
            self._speaking = self._leaving.enter_context(channel.conn_or_acquire())
            self._opened = channel
        return self._opened


def _delivery(tag: int, item: bytes) -> Delivery:
    """The message in an item of the list; one that is not in kombu's format is its own body."""
    try:
        envelope = json.loads(item)
        properties = envelope["properties"]
        known_as = {"message_id": properties.get("message_id") or properties.get("delivery_tag")}
        carried = {"content_type": envelope.get("content-type"), "content_encoding": envelope.get("content-encoding")}
        return Delivery(
            tag=tag,
            body=_body(envelope["body"], properties.get("body_encoding")),
            headers=dict(envelope.get("headers") or {}),
            properties={**carried, **known_as},
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return Delivery(tag=tag, body=item)


def _body(text: str, encoding: str | None) -> bytes:
    return b64decode(text, validate=True) if encoding == "base64" else text.encode()


def _dead_item(delivery: Delivery, headers: dict[str, str], queue: str) -> str:
    properties = {
        "message_id": delivery.properties.get("message_id"),
        "body_encoding": "base64",
        "delivery_tag": str(uuid4()),
        "delivery_mode": PERSISTENT,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
    }
    envelope = {
        "body": b64encode(delivery.body).decode(),
        "content-type": delivery.properties.get("content_type") or "application/octet-stream",
        "content-encoding": delivery.properties.get("content_encoding") or "binary",
        "headers": {**delivery.headers, **headers},
        "properties": properties,
    }
    return json.dumps(envelope)
