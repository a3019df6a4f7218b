"""Redis and Valkey: what is taken is kept beside the queue under a lease, and goes back when nobody renews it.

The consumer of kombu takes a message off the list first and writes down afterwards that it did: a process that ends in
between loses it. Here both are one script. Messages are in kombu's format, so that its producers can write them.
"""

import json
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any
from uuid import uuid4

import redis
import structlog
import uuid_utils
from kombu import Connection, Producer
from kombu.exceptions import BatchPublishError

from engines.connectors.broker.lines import CONNECT_LIMIT, SILENCE_LIMIT
from engines.connectors.broker.messages import Delivery, Tag
from engines.connectors.freshness import Moment, age, now

log = structlog.get_logger("ergon.broker")

ROUND_TRIP = 1000
# The part of a lease in which nobody need be asked whether it is still ours.
TRUSTED = 0.9
LOST = "this process renewed them too late; they are not started, and the outcomes of running ones are not recorded"
PERSISTENT = 2
_NOW = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
"""
# KEYS begin with four names, for what is held, by tag: the messages, until when, how often each came back from a worker
# that died, and which of those have been started. A message comes back under a new tag, with its count; in the queue it
# has none. The queue's lists by priority may follow: a tag ends with the number of the one it was taken from.
_PLACE = """
local function place_of(tag) return 4 + (tonumber(string.match(tag, ':%d+:(%d+)')) or 1) end
"""
# A full server refuses scripts whose first write needs memory. What lets it get rid of messages is to be done all the
# same, and so begins with a write that needs none.
_ALSO_IF_FULL = """
redis.call('SREM', KEYS[4], '')
"""
# What is held ends. ARGV[1] is the id of the request. If its answer was lost it is repeated under that id, and told
# what it has ended already; this is kept for an hour under KEYS[5], a name of the connection's own.
_END = """
local has_returned = redis.call('HLEN', KEYS[3]) > 0
local ended, before = {}, nil
local function was_ended(tag)
  if not before then
    before = {}
    local kept = redis.call('GET', KEYS[5]) or ''
    if string.sub(kept, 1, #ARGV[1]) == ARGV[1] then
      for one in string.gmatch(kept, '%S+') do before[one] = true end
    end
  end
  return before[tag]
end
local function finish(tag)
  local is_ours, is_again = redis.call('HDEL', KEYS[1], tag) == 1, false
  if is_ours then
    redis.call('ZREM', KEYS[2], tag)
    redis.call('SREM', KEYS[4], tag)
    if has_returned then redis.call('HDEL', KEYS[3], tag) end
  elseif was_ended(tag) then
    is_ours, is_again = true, true
  end
  if is_ours then ended[#ended + 1] = tag end
  return is_ours, is_again
end
local function remember() redis.call('SET', KEYS[5], ARGV[1] .. ' ' .. table.concat(ended, ' '), 'EX', 3600) end
"""

# A tag begins with the id of the fetch, ARGV[3], and is never given twice. Numbers that the server counts would be: a
# crash or a failover makes it forget the last ones, and a worker would settle what another was given. Tags sort in the
# order in which they were taken, in which lapsed messages are given again. A fetch whose answer was lost is repeated
# under its id, and given what it was given before.
#
# A worker that dies takes with it all that it holds, most of it never started. Which message is poison shows from the
# second time on: one that came back before counts again only if it was started.
TAKE = f"""{_NOW}{_PLACE}{_ALSO_IF_FULL}
local wanted, lists = tonumber(ARGV[1]), #KEYS - 4
local taken, number = {{}}, 0
local function give(tag, item, returns)
  redis.call('ZADD', KEYS[2], now + tonumber(ARGV[2]), tag)
  taken[#taken + 1] = tag
  taken[#taken + 1] = item
  taken[#taken + 1] = returns
end
local function hold(item, returns, place)
  local tag
  repeat
    number = number + 1
    tag = string.format('%s:%06d:%d', ARGV[3], number, place - 4)
  until redis.call('HSETNX', KEYS[1], tag, item) == 1
  if returns > 0 then redis.call('HSET', KEYS[3], tag, returns) end
  give(tag, item, returns)
end
local is_repeated
repeat
  is_repeated = false
  for list = 1, lists do
    local tag = string.format('%s:%06d:%d', ARGV[3], number + 1, list)
    local item = redis.call('HGET', KEYS[1], tag)
    if item then
      is_repeated = true
      give(tag, item, tonumber(redis.call('HGET', KEYS[3], tag) or 0))
    end
  end
  if is_repeated then number = number + 1 end
until not is_repeated
if number > 0 then return taken end
for _, tag in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, wanted)) do
  local item = redis.call('HGET', KEYS[1], tag)
  local returns = tonumber(redis.call('HGET', KEYS[3], tag) or 0)
  local was_started = redis.call('SREM', KEYS[4], tag) == 1
  redis.call('HDEL', KEYS[1], tag)
  redis.call('ZREM', KEYS[2], tag)
  redis.call('HDEL', KEYS[3], tag)
  if was_started or returns == 0 then returns = returns + 1 end
  if item then hold(item, returns, place_of(tag)) end
end
if number > 0 then redis.call('EXPIRE', KEYS[3], 604800) end
for place = 5, #KEYS do
  while #taken < 3 * wanted do
    local item = redis.call('RPOP', KEYS[place])
    if not item then break end
    hold(item, 0, place)
  end
end
return taken
"""
# Of those that are not held any more, here and below: nothing changes, and the caller hears of it.
ACKNOWLEDGE = f"""{_END}
local late = {{}}
for place = 2, #ARGV do
  if not finish(ARGV[place]) then late[#late + 1] = ARGV[place] end
end
remember()
return late
"""
# Further KEYS: the queue's lists by priority. What is given back was not started, whatever was written down. What came
# back before keeps its count: it is left under a tag that nobody has, as if its lease had lapsed.
RELEASE = f"""{_PLACE}{_ALSO_IF_FULL}{_END}
local released = 0
for place = #ARGV, 2, -1 do
  local tag = ARGV[place]
  local item, returns = redis.call('HGET', KEYS[1], tag), redis.call('HGET', KEYS[3], tag)
  if item and returns then
    redis.call('HSET', KEYS[1], tag .. '~', item)
    redis.call('HSET', KEYS[3], tag .. '~', returns)
    redis.call('ZADD', KEYS[2], 0, tag .. '~')
  elseif item then
    redis.call('RPUSH', KEYS[place_of(tag) + 1] or KEYS[6], item)
  end
  if finish(tag) then released = released + 1 end
end
remember()
return released
"""
# KEYS[6] is the dead-letter queue.
BURY = f"""{_END}
local is_ours, is_again = finish(ARGV[2])
if is_ours and not is_again then redis.call('LPUSH', KEYS[6], ARGV[3]) end
remember()
return is_ours and 1 or 0
"""
COUNT = f"""{_NOW}
local waiting = redis.call('ZCOUNT', KEYS[2], '-inf', now)
for place = 5, #KEYS do waiting = waiting + redis.call('LLEN', KEYS[place]) end
return waiting
"""
START = f"""{_ALSO_IF_FULL}
local is_ours = redis.call('HEXISTS', KEYS[1], ARGV[1])
if is_ours == 1 then redis.call('SADD', KEYS[4], ARGV[1]) end
return is_ours
"""
RENEW = f"""{_NOW}{_ALSO_IF_FULL}
local lost = {{}}
for place = 2, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[place]) == 1 then
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[1]), ARGV[place])
  else
    lost[#lost + 1] = ARGV[place]
  end
end
return lost
"""


class RedisLine:
    """A Redis or Valkey connection. Leases belong to the messages and outlive the connection."""

    broken: tuple[type[Exception], ...] = (redis.RedisError, OSError)
    refused: tuple[type[Exception], ...] = (redis.AuthenticationError, redis.exceptions.NoPermissionError)

    def __init__(self, url: str, queue: str, dead: str, *, lease: float) -> None:
        self._url, self._queue, self._dead, self._lease = url, queue, dead, lease
        self.tick = lease / 3
        self.on_lost: Callable[[], None] = lambda: None
        self._kept = [f"ergon:{what}:{queue}" for what in ("held", "held_until", "returns", "started")]
        self._connection: Any = None
        self._opened: Any = None
        self._speaking: Any = None
        self._leaving = ExitStack()
        # By tag: since when it is known that the broker holds it for us.
        self._held: dict[Tag, Moment] = {}
        self._wanted = 0
        self._ended = f"ergon:ended:{queue}:{uuid4().hex}"
        # The ids of a fetch, and of a request that ends something, which have had no answer yet.
        self._fetch = self._end = ""

    def begin(self, count: int) -> None:
        self._wanted = count

    def collect(self, seconds: float) -> list[Delivery]:
        asked_at = now()
        self._fetch = self._fetch or uuid_utils.uuid7().hex
        taken = self._run(TAKE, [*self._kept, *self._lists()], self._wanted, self._lease, self._fetch)
        self._fetch = ""
        if not taken:
            time.sleep(seconds)
        each = zip(taken[::3], taken[1::3], taken[2::3], strict=True)
        found = [_delivery(tag, item, int(returns)) for tag, item, returns in each]
        self._held.update((delivery.tag, asked_at) for delivery in found)
        return found

    def end(self) -> list[Delivery]:
        return []

    def is_ours(self, delivery: Delivery) -> bool | None:
        confirmed = self._held.get(delivery.tag)
        if confirmed is None:
            return False
        return True if age(confirmed) < self._lease * TRUSTED else None

    def confirm(self) -> None:
        self.keep_alive()

    def start(self, delivery: Delivery) -> bool:
        return bool(self._run(START, self._kept, delivery.tag))

    def acknowledge(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        tags = [delivery.tag for delivery in deliveries]
        late = set(self._end_by(ACKNOWLEDGE, [], *tags))
        self._let_go(tags)
        return [delivery for delivery in deliveries if delivery.tag in late]

    def dead_letter(self, delivery: Delivery, headers: dict[str, str]) -> bool:
        properties = {
            "message_id": delivery.properties.get("message_id"),
            "body_encoding": "base64",
            "delivery_tag": str(uuid4()),
            "delivery_mode": PERSISTENT,
            "delivery_info": {"exchange": "", "routing_key": self._dead},
            "priority": 0,
        }
        envelope = {
            "body": b64encode(delivery.body).decode(),
            "content-type": delivery.properties.get("content_type") or "application/octet-stream",
            "content-encoding": delivery.properties.get("content_encoding") or "binary",
            "headers": {**delivery.headers, **headers},
            "properties": properties,
        }
        is_ours = bool(self._end_by(BURY, [self._dead], delivery.tag, json.dumps(envelope)))
        self._let_go([delivery.tag])
        return is_ours

    def release(self, deliveries: Sequence[Delivery]) -> int:
        return self._put_back([delivery.tag for delivery in deliveries])

    def let_lapse(self, deliveries: Sequence[Delivery]) -> None:
        self._let_go(delivery.tag for delivery in deliveries)

    def publish(self, messages: deque[tuple[str, str]]) -> None:
        producer = Producer(self._channel(), routing_key=self._queue)
        described = {"content_type": "application/json", "content_encoding": "utf-8", "delivery_mode": PERSISTENT}
        while burst := list(islice(messages, ROUND_TRIP)):
            try:
                with producer.batch(max_size=ROUND_TRIP):
                    for uid, text in burst:
                        producer.publish(text, message_id=uid, **described)
            except BatchPublishError as error:
                raise error.__cause__ or error from None  # what it was that failed says whether to try again
            for _ in burst:
                messages.popleft()

    def count(self) -> int:
        return int(self._run(COUNT, [*self._kept, *self._lists()]))

    def keep_alive(self) -> None:
        if held := list(self._held):
            asked_at = now()
            lost = self._run(RENEW, self._kept, self._lease, *held)
            self._held.update(dict.fromkeys(held, asked_at))
            self._let_go(lost)
            if lost:
                log.warning("leases_lost", queue=self._queue, messages=len(lost), hint=LOST)
                self.on_lost()

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

    def _put_back(self, tags: list[Tag]) -> int:
        released = int(self._end_by(RELEASE, self._lists(), *tags)) if tags else 0
        self._let_go(tags)
        return released

    def _let_go(self, tags: Iterable[Tag]) -> None:
        for tag in tags:
            self._held.pop(tag, None)

    def _end_by(self, script: str, lists: list[str], *arguments: Any) -> Any:
        self._end = self._end or uuid4().hex
        answer = self._run(script, [*self._kept, self._ended, *lists], self._end, *arguments)
        self._end = ""
        return answer

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
            # Who waits for longer than it takes to renew what is held would lose it.
            answer = max(CONNECT_LIMIT, min(SILENCE_LIMIT, self.tick))
            limits = {"socket_timeout": answer, "socket_connect_timeout": CONNECT_LIMIT}
            self._connection = Connection(self._url, transport_options=limits)
            self._connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
            channel = self._connection.channel()
            self._speaking = self._leaving.enter_context(channel.conn_or_acquire())
            self._opened = channel
        return self._opened


def _delivery(tag: bytes, item: bytes, returns: int) -> Delivery:
    """The message in an item of the list; one that is not in kombu's format is its own body."""
    counted: dict[str, Any] = {"returns": returns, "is_suspect": returns > 0}
    try:
        envelope = json.loads(item)
        properties = envelope["properties"]
        known_as = {"message_id": properties.get("message_id") or properties.get("delivery_tag")}
        carried = {"content_type": envelope.get("content-type"), "content_encoding": envelope.get("content-encoding")}
        text, is_encoded = envelope["body"], properties.get("body_encoding") == "base64"
        return Delivery(
            tag=tag,
            body=b64decode(text, validate=True) if is_encoded else text.encode(),
            headers=dict(envelope.get("headers") or {}),
            properties={**carried, **known_as},
            **counted,
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return Delivery(tag=tag, body=item, **counted)
