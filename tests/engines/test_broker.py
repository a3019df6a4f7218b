"""Transactions as messages: the broker connector on Valkey and on RabbitMQ."""

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from struct import pack
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import amqp
import kombu
import psutil
import pytest
import redis

from engines import (
    AbandonedAttemptsError,
    AsyncConnector,
    Connector,
    ConnectorError,
    Failure,
    RetryPolicy,
    Success,
    Transaction,
    TransactionException,
)
from engines.connectors.broker import BrokerConnector
from engines.connectors.broker.on_rabbitmq import Publisher
from engines.tasks.registry import connectors
from ergon_site import embedded
from tests.conformance.harness import ENGINES, Engine, Script
from tests.conformance.test_abandonment import Hook, hook, run
from tests.faults.relay import relay_to
from tests.processes import LIMIT, ROOT, eventually, words_of
from tests.servers import Restartable

pytestmark = pytest.mark.once

__all__ = ["hook", "run"]

Connect = Callable[..., BrokerConnector]


@pytest.fixture(params=["valkey", "rabbitmq"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each broker in turn."""
    if request.param == "valkey":
        return os.environ["CELERY_BROKER_URL"]
    address: str = request.getfixturevalue("rabbitmq")
    return address


@pytest.fixture
def queue() -> str:
    return f"test.{uuid4().hex[:12]}"


@pytest.fixture
def connect(url: str, queue: str) -> Iterator[Connect]:
    """Makes connectors to the test's queue; they are closed and the queue removed at the end."""
    made: list[BrokerConnector] = []

    def connector(**options: Any) -> BrokerConnector:
        made.append(BrokerConnector(url, queue, **{"wait": 1.0, **options}))
        return made[-1]

    yield connector
    for one in made:
        one.close()
    with kombu.Connection(url) as connection, connection.channel() as channel:
        for name in (queue, f"{queue}.dead"):
            channel.queue_delete(name)


@pytest.fixture
def put(url: str, queue: str) -> Callable[[str], None]:
    """Puts a text into the queue as any producer would."""

    def publish(text: str) -> None:
        # Confirmed on RabbitMQ, so that it is there when this returns.
        options = {"confirm_publish": True} if url.startswith("amqp") else {}
        with kombu.Connection(url, transport_options=options) as connection, connection.channel() as channel:
            producer = kombu.Producer(channel)
            producer.publish(text, routing_key=queue, content_type="application/json", content_encoding="utf-8")

    return publish


@pytest.fixture
def dead(url: str, queue: str) -> Callable[[], list[Any]]:
    return lambda: dead_messages(url, queue)


def dead_messages(url: str, queue: str) -> list[Any]:
    """Takes all messages out of the dead-letter queue."""
    found = []
    with kombu.Connection(url) as connection, connection.channel() as channel:
        while message := kombu.Queue(f"{queue}.dead", channel=channel).get(no_ack=True):
            found.append(message)
    return found


def numbered(count: int) -> list[Transaction]:
    return [Transaction(str(number), {"n": number}) for number in range(count)]


CONSUMERS = [engine for engine in ENGINES if engine.is_consumer]


@pytest.mark.parametrize("engine", CONSUMERS, ids=str)
def test_every_message_is_consumed_once_by_whoever_consumes(engine: Engine, connect: Connect) -> None:
    connect().dispatch_transactions(numbered(60))
    script = Script()

    def consume() -> None:
        task = engine.task(script, {"broker": connect()})
        engine.drive(lambda: engine.start(task, [], engine.policy(batch=10, concurrency=4)))

    consumers = [threading.Thread(target=consume) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.join(30)
    worked = Counter(name for stage, name, _ in script.calls if stage == "work")
    assert worked == Counter(str(number) for number in range(60))
    assert connect().count() == 0


def test_what_is_dispatched_is_fetched_unchanged_and_in_order(connect: Connect) -> None:
    sent = [Transaction("a", {"n": [1, None, "ü"]}, {"k": 1}, correlation_id="c", trace_context={"traceparent": "t"})]
    sent += numbered(3)
    connector = connect()
    assert connector.dispatch_transactions(sent) == 4
    assert connector.count() == 4
    assert [one.to_json() for one in connector.fetch_transactions(10)] == [one.to_json() for one in sent]


def test_a_fetch_takes_no_more_than_it_was_asked_for(connect: Connect) -> None:
    first, second = connect(), connect(prefetch=2)
    first.dispatch_transactions(numbered(10))
    assert len(first.fetch_transactions(3)) == 3
    assert len(second.fetch_transactions(5)) == 2
    assert second.count() == 5


def test_a_fetch_waits_for_the_first_message_and_says_when_there_is_none(connect: Connect) -> None:
    waiting, other = connect(wait=LIMIT), connect()
    assert other.fetch_transactions(5) == []
    sending = threading.Timer(0.3, other.dispatch_transactions, [numbered(1)])
    sending.start()
    began = time.monotonic()
    assert [one.id for one in waiting.fetch_transactions(5)] == ["0"]
    assert time.monotonic() - began < LIMIT / 2, "not when its wait is over"
    sending.join()


def test_a_message_is_kept_until_its_outcome_is_final(connect: Connect) -> None:
    connector = connect()
    connector.dispatch_transactions(numbered(2))
    first, second = connector.fetch_transactions(2)
    connector.acknowledge(first, Success("done"))
    connector.acknowledge(first, Success("done"))
    connector.close()
    again = connect().fetch_transactions(5)
    assert [one.id for one in again] == [second.id]


def test_a_failed_one_goes_to_the_dead_letter_queue_with_its_error_and_unchanged(
    connect: Connect, dead: Callable[[], list[Any]]
) -> None:
    told: list[tuple[str, str]] = []
    connector = connect(on_dead=lambda transaction, failure: told.append((transaction.id, str(failure.error))))
    connector.dispatch_transactions(numbered(1))
    (transaction,) = connector.fetch_transactions(1)
    connector.acknowledge(transaction, Failure(TransactionException("no such account")))
    (message,) = dead()
    assert Transaction.from_json(message.body).payload == {"n": 0}
    assert message.headers["ergon-error-type"] == "TransactionException"
    assert message.headers["ergon-error-message"] == "no such account"
    assert message.headers["ergon-error-category"] == "SYSTEM"
    assert told == [("0", "no such account")]
    assert connector.fetch_transactions(1) == []


def test_one_that_could_not_be_recorded_is_not_lost(connect: Connect, dead: Callable[[], list[Any]]) -> None:
    def fail(*_: Any) -> None:
        msg = "the database is away"
        raise OSError(msg)

    connector = connect(on_dead=fail)
    connector.dispatch_transactions(numbered(1))
    (transaction,) = connector.fetch_transactions(1)
    with pytest.raises(OSError, match="away"):
        connector.acknowledge(transaction, Failure(TransactionException("no")))
    connector.close()
    assert dead() == []
    assert len(connect().fetch_transactions(1)) == 1


def test_what_is_released_is_there_again_in_its_place(connect: Connect) -> None:
    connector, other = connect(), connect()
    connector.dispatch_transactions(numbered(5))
    connector.release(connector.fetch_transactions(3))
    assert [one.id for one in other.fetch_transactions(5)] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "the message is not a transaction: Expecting value"),
        ('["a"]', "a transaction must be a JSON object, not list"),
        ('{"id": "x"}', "a transaction needs the field 'payload'"),
        ('{"payload": 1, "colour": 2}', "a transaction has no field 'colour'"),
        ('{"payload": 1, "available_at": "2999-01-01T00:00:00Z"}', "a broker cannot delay messages"),
        ("[" * 100_000, "the message is not a transaction"),
    ],
)
def test_a_message_that_is_no_transaction_is_buried_and_blocks_nobody(
    text: str, words: str, connect: Connect, put: Callable[[str], None], dead: Callable[[], list[Any]]
) -> None:
    told: list[Transaction] = []
    connector = connect(on_dead=lambda transaction, _: told.append(transaction))
    connector.count()
    put(text)
    put('{"payload": {"n": 1}}')
    assert [one.payload for one in connector.fetch_transactions(1)] == [{"n": 1}]
    (message,) = dead()
    body = message.body if isinstance(message.body, str) else bytes(message.body).decode()
    assert body == text
    assert words in message.headers["ergon-error-message"]
    assert [one.payload for one in told] == [text]


def test_a_message_may_be_as_submissions_are(connect: Connect, put: Callable[[str], None]) -> None:
    connector = connect()
    connector.count()
    fields = {"priority": 5, "dedupe_key": "d", "available_at": "2020-01-01T00:00:00Z", "metadata": None}
    put(json.dumps({"payload": 1, "id": "mine", "correlation_id": "c", **fields}))
    put('{"payload": null}')
    named, unnamed = connector.fetch_transactions(5)
    assert (named.id, named.correlation_id, named.metadata, unnamed.payload) == ("mine", "c", {}, None)
    assert unnamed.id


def test_on_redis_a_plain_text_is_a_message_and_priorities_are_kept(queue: str) -> None:
    url = os.environ["CELERY_BROKER_URL"]
    with closing(redis.Redis.from_url(url)) as client:
        client.lpush(queue, '{"payload": "plain"}')
    with kombu.Connection(url) as connection, connection.channel() as channel:
        for number in (9, 3):
            kombu.Producer(channel).publish({"payload": number}, routing_key=queue, priority=number)
    connector = BrokerConnector(url, queue, wait=1.0)
    fetched = connector.fetch_transactions(5)
    assert [one.payload for one in fetched] == ["plain", 3, 9]
    for one in fetched:
        connector.acknowledge(one, Success(None))
    connector.close()


class RawMessage(amqp.Message):
    """A message with headers that a library of another language can write, and ours cannot."""

    def _serialize_properties(self) -> bytes:
        table = bytes(self.body)
        return pack(">HI", 0x2000, len(table)) + table


def test_on_rabbitmq_a_message_whose_properties_cannot_be_read_is_buried_and_blocks_nobody(
    rabbitmq: str, queue: str
) -> None:
    milliseconds = b"\x04sentT" + pack(">Q", 1_760_000_000_000)
    hostile = [
        amqp.Message(b'{"payload": 1}', message_id=b"\xe9\xe8"),
        RawMessage(milliseconds),
    ]
    good = amqp.Message(b'{"id": "good", "payload": 2}', application_headers={"sent": "today"})
    told: list[Any] = []
    connector = BrokerConnector(rabbitmq, queue, wait=LIMIT, on_dead=lambda one, _: told.append(one.payload))
    connector.count()
    with kombu.Connection(rabbitmq, transport_options={"confirm_publish": True}) as connection:
        channel = connection.connection.channel()
        for message in (*hostile, good):
            channel.basic_publish(message, exchange="", routing_key=queue)
        assert [one.id for one in connector.fetch_transactions(5)] == ["good"]
        buried = dead_messages(rabbitmq, queue)
        assert [bytes(message.body) for message in buried] == [b'{"payload": 1}', milliseconds]
        for message in buried:
            assert message.headers["ergon-error-type"] == "MalformedMessageError"
            assert "the properties of the message cannot be read" in message.headers["ergon-error-message"]
        assert told[0] == 1, "what can be replayed"
        connector.close()
        channel.queue_delete(queue)


def test_on_rabbitmq_a_message_is_worked_on_and_buried_however_large_its_headers(rabbitmq: str, queue: str) -> None:
    """RabbitMQ ends the connection over a message whose headers do not fit into a frame of 131,072 bytes."""
    made = [BrokerConnector(rabbitmq, queue, wait=LIMIT) for _ in range(2)]
    first, second = made
    first.count()
    with kombu.Connection(rabbitmq, transport_options={"confirm_publish": True}) as connection:
        channel = connection.connection.channel()
        for length in (131_000, 100):
            message = amqp.Message(b'{"payload": 1}', application_headers={"long": "x" * length})
            channel.basic_publish(message, exchange="", routing_key=queue)
        assert len(first.fetch_transactions(2)) == 2
        first.close()
        for transaction in second.fetch_transactions(2):
            assert second.begin(transaction), "as a copy with more headers: it has come back"
            assert second.acknowledge(transaction, Failure(TransactionException("no such account")))
        large, small = dead_messages(rabbitmq, queue)
        assert {message.headers["ergon-error-message"] for message in (large, small)} == {"no such account"}
        assert ("long" in large.headers, "long" in small.headers) == (False, True)
        second.close()
        channel.queue_delete(queue)


@pytest.mark.parametrize("uid", ["文" * 200, "x" * 300, "half a \ud800 character"])
def test_an_id_may_have_any_length_and_any_characters(uid: str, connect: Connect) -> None:
    connector = connect()
    assert connector.dispatch_transactions([Transaction(uid, 1)]) == 1
    assert [one.id for one in connector.fetch_transactions(1)] == [uid]


def test_on_rabbitmq_a_queue_is_used_as_it_is(rabbitmq: str, queue: str) -> None:
    with kombu.Connection(rabbitmq) as connection, connection.channel() as channel:
        channel.queue_declare(queue, durable=True, auto_delete=False, arguments={"x-max-length": 5})
        connector = BrokerConnector(rabbitmq, queue, wait=1.0)
        connector.dispatch_transactions(numbered(1))
        assert len(connector.fetch_transactions(1)) == 1
        connector.close()
        channel.queue_delete(queue)


def test_on_rabbitmq_what_is_refused_before_the_last_is_sent_is_told(rabbitmq: str, queue: str) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with kombu.Connection(rabbitmq) as connection:
        channel = connection.connection.channel()
        channel.queue_declare(queue, durable=True, auto_delete=False, arguments=full)
        publisher = Publisher(connection.connection, channel)
        for _ in range(3):
            publisher.send(queue, b"{}", {})
        with suppress(TimeoutError):
            while True:  # as the library does before it sends the next one
                connection.connection.drain_events(timeout=1)
        with pytest.raises(ConnectorError, match="refused"):
            publisher.flush()
        channel.queue_delete(queue)


def test_on_rabbitmq_what_somebody_else_rejects_is_dead_too(rabbitmq: str, queue: str) -> None:
    connector = BrokerConnector(rabbitmq, queue, wait=1.0)
    connector.dispatch_transactions(numbered(1))
    with kombu.Connection(rabbitmq) as connection, connection.channel() as channel:
        kombu.Queue(queue, channel=channel).get().reject()
        eventually(lambda: len(dead_messages(rabbitmq, queue)) == 1, "the message is dead")
        channel.queue_delete(queue)
    connector.close()


HOLD = """
import sys, time
from engines import ConsumerTask
from engines.connectors.broker import BrokerConnector
class Slow(ConsumerTask):
    def process_transaction(self, transaction):
        print(transaction.id, flush=True)
        time.sleep(600)
Slow({"broker": BrokerConnector(sys.argv[1], sys.argv[2], lease=float(sys.argv[3]))}).consume_transactions()
"""


def test_the_work_of_a_killed_process_comes_back(url: str, queue: str, connect: Connect) -> None:
    connector = connect(wait=LIMIT)
    connector.dispatch_transactions(numbered(1))
    is_at_once = url.startswith("amqp")
    command = [sys.executable, "-c", HOLD, url, queue, "600" if is_at_once else "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        process.send_signal(signal.SIGKILL)
    assert [one.id for one in connector.fetch_transactions(1)] == ["0"]


def test_on_redis_long_work_outlives_its_lease_while_its_process_lives(queue: str) -> None:
    url = os.environ["CELERY_BROKER_URL"]
    for lease in (2.0, 30.0):  # the second for a machine that stood still
        name = f"{queue}.{lease:g}"
        with (
            closing(BrokerConnector(url, name, lease=lease)) as working,
            closing(BrokerConnector(url, name, wait=1.5 * lease)) as other,
        ):
            working.dispatch_transactions(numbered(1))
            (transaction,) = working.fetch_transactions(1)
            given = other.fetch_transactions(1)
            for one in given:
                other.acknowledge(one, Success(None))
            working.acknowledge(transaction, Success(None))
        if not given:
            break
    assert given == []


def test_on_redis_what_lapses_comes_back_in_its_order(queue: str) -> None:
    url = os.environ["CELERY_BROKER_URL"]
    with (
        closing(redis.Redis.from_url(url)) as client,
        closing(BrokerConnector(url, queue, wait=1.0)) as frozen,
        closing(BrokerConnector(url, queue, wait=1.0)) as other,
    ):
        frozen.dispatch_transactions(numbered(24))
        late = [*frozen.fetch_transactions(12), *frozen.fetch_transactions(12)]
        let_lapse(client, queue)
        again = other.fetch_transactions(24)
        assert [one.id for one in again] == [one.id for one in late] == [str(number) for number in range(24)]
        assert not any(frozen.acknowledge(one, Success(None)) for one in late)
        assert all(other.acknowledge(one, Success(None)) for one in again)


def let_lapse(client: redis.Redis, queue: str) -> None:
    """As when the worker that holds them is dead."""
    tags: list[Any] = client.hkeys(f"ergon:held:{queue}")
    client.zadd(f"ergon:held_until:{queue}", dict.fromkeys(tags, 0))


@pytest.fixture
def hire(queue: str) -> Iterator[Callable[[], BrokerConnector]]:
    """Makes workers whose leases end when the test ends them."""
    with ExitStack() as stack:
        url = os.environ["CELERY_BROKER_URL"]
        yield lambda: stack.enter_context(closing(BrokerConnector(url, queue, wait=0.2, lease=10 * LIMIT)))


def test_on_redis_equal_messages_are_counted_each_by_itself(queue: str, hire: Callable[[], BrokerConnector]) -> None:
    url = os.environ["CELERY_BROKER_URL"]
    with closing(redis.Redis.from_url(url)) as client:
        client.lpush(queue, *['{"payload": 1}'] * 3)
        for _ in range(2):
            dying = hire()
            taken = dying.fetch_transactions(5)
            assert [one.payload for one in taken] == [1, 1, 1]
            assert all(dying.begin(one) for one in taken)
            let_lapse(client, queue)
        dying = hire()
        done, given_back, deadly = dying.fetch_transactions(5)
        assert dying.acknowledge(done, Success(None))
        dying.release([given_back])
        assert dying.begin(deadly)
        let_lapse(client, queue)
        assert [one.payload for one in hire().fetch_transactions(5)] == [1]
    assert len(dead_messages(url, queue)) == 1


def test_on_redis_what_is_given_back_keeps_its_count(queue: str, hire: Callable[[], BrokerConnector]) -> None:
    url = os.environ["CELERY_BROKER_URL"]
    hire().dispatch_transactions(numbered(1))
    with closing(redis.Redis.from_url(url)) as client:
        for _ in range(3):
            dying = hire()
            (given_back,) = dying.fetch_transactions(1)
            dying.release([given_back])
            assert (dying.count(), dying.begin(given_back), dying.acknowledge(given_back, Success(None))) == (
                1,
                False,
                False,
            )
            (deadly,) = dying.fetch_transactions(1)
            assert dying.begin(deadly)
            let_lapse(client, queue)
        assert hire().fetch_transactions(1) == []
    assert len(dead_messages(url, queue)) == 1


@pytest.mark.parametrize("engine", CONSUMERS, ids=str)
def test_on_redis_what_hangs_at_every_attempt_is_poison_and_not_given_back_for_ever(
    engine: Engine, queue: str, hire: Callable[[], BrokerConnector], hook: Hook, run: Callable[[Any], Any]
) -> None:
    url = os.environ["CELERY_BROKER_URL"]
    policy = engine.policy(work=RetryPolicy(max_attempts=3, timeout=0.2, backoff=LIMIT), batch=1, streaming=True)
    with closing(redis.Redis.from_url(url)) as client:
        hire().dispatch_transactions(numbered(1))
        for _ in range(3):
            hanging = hire()
            task = hook.given_to(engine.task(Script(), {"m": hanging}), engine)
            task.abandoned_grace, task.cancel_grace = 0.2, 0.0
            with pytest.raises(AbandonedAttemptsError):
                run(engine.start(task, [], policy))
            hanging.close()
            assert hire().fetch_transactions(1) == []
            let_lapse(client, queue)
        assert hire().fetch_transactions(1) == []
    assert len(dead_messages(url, queue)) == 1


@contextmanager
def relayed(queue: str) -> Iterator[tuple[BrokerConnector, "redis.Redis", Callable[..., Any]]]:
    """A connector, its Redis, and what makes a call of which the answer is lost once Redis has done it."""
    url = os.environ["CELERY_BROKER_URL"]
    with (
        closing(redis.Redis.from_url(url)) as client,
        relay_to(url) as relay,
        closing(BrokerConnector(relay.address, queue, lease=10 * LIMIT)) as connector,
        ThreadPoolExecutor() as pool,
    ):

        def lose_answer(to: bytes, is_done: Callable[[], bool], call: Callable[..., Any], *arguments: Any) -> Any:
            relay.silence_answers_to(to)
            asked = pool.submit(call, *arguments)
            eventually(is_done, "it is done, of which nobody is told")
            relay.cut()
            relay.resume()
            return asked.result(LIMIT)

        yield connector, client, lose_answer


def test_on_redis_a_fetch_whose_answer_was_lost_is_given_the_same_again(
    queue: str, hire: Callable[[], BrokerConnector]
) -> None:
    with relayed(queue) as (connector, client, lose_answer):
        assert connector.count() == 0
        hire().dispatch_transactions(numbered(3))
        taken = lose_answer(b"RPOP", lambda: client.hlen(f"ergon:held:{queue}") == 3, connector.fetch_transactions, 3)
        assert ([one.id for one in taken], connector.count()) == (["0", "1", "2"], 0)
        assert all(connector.acknowledge(one, Success(None)) for one in taken)
        assert client.exists(f"ergon:held:{queue}", f"ergon:returns:{queue}") == 0


@pytest.mark.parametrize(
    "act",
    [
        lambda one, taken: one.acknowledge(taken[0], Success(None)),
        lambda one, taken: one.acknowledge(taken[0], Failure(TransactionException("no"))),
        lambda one, taken: one.release(taken) or one.given_back == 1,
    ],
    ids=["success", "failure", "release"],
)
def test_on_redis_an_outcome_whose_answer_was_lost_counts_as_what_it_is(
    act: Callable[[BrokerConnector, Any], bool], queue: str, hire: Callable[[], BrokerConnector]
) -> None:
    hire().dispatch_transactions(numbered(1))
    with relayed(queue) as (connector, client, lose_answer):
        taken = connector.fetch_transactions(1)
        assert lose_answer(b"remember()", lambda: client.hlen(f"ergon:held:{queue}") == 0, act, connector, taken)
        assert client.llen(f"{queue}.dead") + client.llen(queue) <= 1
        assert not connector.acknowledge(taken[0], Success(None)), "it counts once"
    dead_messages(os.environ["CELERY_BROKER_URL"], queue)


def test_a_full_redis_takes_what_makes_room(queue: str, hire: Callable[[], BrokerConnector]) -> None:
    hire().dispatch_transactions(numbered(4))
    with closing(redis.Redis.from_url(os.environ["CELERY_BROKER_URL"])) as client:
        hire().fetch_transactions(1)
        let_lapse(client, queue)
        working = hire()
        back, done, *others = working.fetch_transactions(4)
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(redis.OutOfMemoryError):
                client.set("full", 1)
            assert working.begin(back)
            working._owner.ask(lambda line: line.keep_alive(), patience=0).result(LIMIT)
            assert working.acknowledge(done, Success(None))
            working.release([back, *others])
            again = working.fetch_transactions(4)
            assert {one.id for one in again} == {"0", "2", "3"}
            assert all(working.acknowledge(one, Success(None)) for one in again)
        finally:
            client.config_set("maxmemory", 0)


@contextmanager
def nothing_more_taken(url: str) -> Iterator[None]:
    """The memory of a broker is used up, for publishing."""
    if url.startswith("redis"):
        with closing(redis.Redis.from_url(url)) as client:
            client.config_set("maxmemory", 1)
            try:
                yield
            finally:
                client.config_set("maxmemory", 0)
        return
    set_memory_of_rabbitmq("0")
    try:
        yield
    finally:
        set_memory_of_rabbitmq("0.4")


def set_memory_of_rabbitmq(part: str) -> None:
    """Tell the RabbitMQ of these tests how much of the machine's memory it may use."""
    home = Path(os.environ["ERGON_DATA_DIR"]) / "rabbitmq"
    running = "\n".join(map(words_of, psutil.Process().children(recursive=True)))
    (mapper,) = re.findall(r"/epmd -port (\d+)", running)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "ERL_EPMD_PORT": mapper, "LANG": "C.UTF-8"}
    command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-n", "ergon@localhost", "set_vm_memory_high_watermark", part]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=LIMIT)


def test_what_a_full_broker_does_not_take_holds_up_no_outcome(broker: Restartable, queue: str) -> None:
    with (
        closing(BrokerConnector(broker.address, queue, patience=LIMIT)) as connector,
        ThreadPoolExecutor() as pool,
    ):
        connector.dispatch_transactions(numbered(2))
        first, second = connector.fetch_transactions(2)
        with nothing_more_taken(broker.address):
            publishing = pool.submit(connector.dispatch_transactions, [Transaction("new", None)])
            with pytest.raises(TimeoutError):
                publishing.result(1)
            assert connector.acknowledge(first, Success(None))
            connector.flush()
            assert not publishing.done()
        assert publishing.result(LIMIT) == 1
        assert connector.acknowledge(second, Success(None)), "nothing that it held was lost meanwhile"
        assert {one.id for one in connector.fetch_transactions(5)} == {"new"}


def test_on_redis_what_is_published_while_the_connection_breaks_is_published_on_the_next(
    queue: str, hire: Callable[[], BrokerConnector]
) -> None:
    with relayed(queue) as (connector, client, lose_answer):
        connector.dispatch_transactions([Transaction("first", None)])
        assert (
            lose_answer(
                b"LPUSH",
                lambda: client.llen(queue) == 2,
                connector.dispatch_transactions,
                [Transaction("second", None)],
            )
            == 1
        )
    assert {one.id for one in hire().fetch_transactions(5)} == {"first", "second"}


def test_on_redis_what_is_given_back_overtakes_nothing_more_urgent(
    queue: str, hire: Callable[[], BrokerConnector]
) -> None:
    def publish(priority: int) -> None:
        with kombu.Connection(os.environ["CELERY_BROKER_URL"]) as connection, connection.channel() as channel:
            kombu.Producer(channel).publish({"payload": priority}, routing_key=queue, priority=priority)

    worker = hire()
    publish(9)
    given_back = worker.fetch_transactions(1)
    publish(3)
    worker.release(given_back)
    taken = worker.fetch_transactions(5)
    assert [one.payload for one in taken] == [3, 9]
    assert all(worker.acknowledge(one, Success(None)) for one in taken)


def test_on_redis_what_a_worker_of_an_earlier_release_holds_under_a_number_comes_back_when_it_lapses(
    queue: str,
) -> None:
    url = os.environ["CELERY_BROKER_URL"]
    with closing(redis.Redis.from_url(url)) as client, closing(BrokerConnector(url, queue, wait=0.2)) as connector:
        client.hset(f"ergon:held:{queue}", "7", '{"payload": "old"}')
        client.zadd(f"ergon:held_until:{queue}", {"7": time.time() + 10 * LIMIT})
        connector.dispatch_transactions(numbered(2))
        assert [one.id for one in connector.fetch_transactions(5)] == ["0", "1"]
        client.zadd(f"ergon:held_until:{queue}", {"7": 0})
        (old,) = connector.fetch_transactions(5)
        assert old.payload == "old"
        assert connector.acknowledge(old, Success(None))


def test_whoever_asks_is_told_of_messages_that_the_broker_has_taken_back(
    url: str, queue: str, connect: Connect
) -> None:
    lost: list[str] = []
    with relay_to(url) as relay:
        connector = BrokerConnector(relay.address, queue, wait=0.2, lease=1.0)
        connector.on_lost(lambda transactions: lost.extend(one.id for one in transactions))
        connector.dispatch_transactions(numbered(2))
        ours, done = connector.fetch_transactions(2)
        assert connector.begin(ours)
        assert connector.acknowledge(done, Success(None))
        if url.startswith("amqp"):
            relay.cut()
        else:
            with closing(redis.Redis.from_url(url)) as client:
                client.delete(f"ergon:held:{queue}")  # as if somebody else had done it
        eventually(lambda: bool(connector.fetch_transactions(1)) or bool(lost), "it is noticed")
        assert (lost, connector.is_lost(ours), connector.begin(ours)) == (["0"], True, False)
        assert connector.acknowledge(ours, Failure(TransactionException("too late"))) is False
        connector.close()


def test_any_thread_may_settle_while_another_fetches(connect: Connect) -> None:
    connector = connect(wait=LIMIT)
    connector.dispatch_transactions(numbered(8))
    batch = connector.fetch_transactions(8)
    fetching = threading.Thread(target=connector.fetch_transactions, args=[1])
    fetching.start()
    settling = [threading.Thread(target=connector.acknowledge, args=[one, Success(None)]) for one in batch]
    began = time.monotonic()
    for thread in settling:
        thread.start()
    for thread in settling:
        thread.join()
    assert time.monotonic() - began < LIMIT / 2, "not when the fetch has ended"
    connector.dispatch_transactions(numbered(1))
    fetching.join()


def test_a_fetch_that_is_cancelled_puts_back_what_it_still_gets(connect: Connect) -> None:
    connector, other = connect(wait=3), connect(wait=LIMIT)

    async def cancel() -> None:
        fetching = asyncio.ensure_future(connector.fetch_transactions_async(5))
        await asyncio.sleep(0)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await connector.dispatch_transactions_async(numbered(1))
        assert [one.id for one in await other.fetch_transactions_async(5)] == ["0"]

    asyncio.run(cancel())


def test_it_serves_async_tasks(connect: Connect) -> None:
    async def all_of_it() -> None:
        connector = connect()
        await connector.dispatch_transactions_async(numbered(3))
        first, second, third = await connector.fetch_transactions_async(3)
        await connector.acknowledge_async(first, Success(None))
        await connector.acknowledge_async(second, Failure(TransactionException("no")))
        await connector.release_async([third])
        assert await connector.count_async() == 1
        await connector.close_async()

    asyncio.run(all_of_it())


def test_what_it_did_not_deliver_and_what_comes_after_the_end_is_refused_in_words(connect: Connect) -> None:
    connector = connect()
    with pytest.raises(ConnectorError, match="'a' did not come from this broker"):
        connector.acknowledge(Transaction("a", 1), Success(None))
    connector.close()
    with pytest.raises(ConnectorError, match="closed"):
        connector.fetch_transactions(1)


def test_a_wrong_password_is_told_at_once_and_not_repeated(url: str) -> None:
    connector = BrokerConnector(url.replace(urlsplit(url).password or "", "wrong-one"), "test.none", patience=LIMIT)
    began = time.monotonic()
    with pytest.raises(ConnectorError, match="refuses the connection") as caught:
        connector.fetch_transactions(1)
    connector.close()
    assert time.monotonic() - began < LIMIT / 2, "not when patience ends"
    assert "wrong-one" not in str(caught.value)


def test_a_broker_that_is_not_there_is_told_when_patience_ends() -> None:
    for scheme in ("amqp", "redis"):
        connector = BrokerConnector(f"{scheme}://127.0.0.1:1", "test.none", patience=0.3)
        with pytest.raises(ConnectorError, match="does not answer"):
            connector.fetch_transactions(1)
        connector.close()


@pytest.mark.parametrize("scheme", ["amqp", "redis"])
def test_whoever_wants_an_end_need_not_wait_for_a_broker_that_is_away(scheme: str) -> None:
    connector = BrokerConnector(f"{scheme}://127.0.0.1:1", "test.none", patience=600)
    fetched: list[list[Transaction]] = []
    fetching = threading.Thread(target=lambda: fetched.append(connector.fetch_transactions(1)))
    fetching.start()
    connector.interrupt()
    fetching.join(LIMIT)
    connector.close()
    assert fetched == [[]]


def test_whoever_wants_an_end_need_not_wait_for_messages(connect: Connect) -> None:
    connector = connect(wait=600)
    fetched: list[list[Transaction]] = []
    fetching = threading.Thread(target=lambda: fetched.append(connector.fetch_transactions(1)))
    fetching.start()
    connector.interrupt()
    fetching.join(LIMIT)
    assert fetched == [[]]


def test_another_kind_of_address_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"amqp://, amqps://, redis:// or rediss://"):
        BrokerConnector("sqs://somewhere", "queue")
    for bad in ({"queue": ""}, {"queue": "q" * 300}, {"queue": "q", "prefetch": 0}):
        with pytest.raises(ValueError, match="name has 1 to 250 bytes"):
            BrokerConnector("amqp://somewhere", **bad)


def test_a_plain_script_needs_no_django() -> None:
    script = "import sys, engines.connectors.broker.on_rabbitmq, engines.connectors.broker.on_redis\n"
    # kombu looks by itself whether Django's texts are there to be written as JSON.
    script += "print({'django.conf', 'django.db', 'celery', 'ergon_site'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert ran.stdout == "set()\n", ran.stderr


def test_it_is_a_connector_of_both_kinds_and_pipelines_can_name_it() -> None:
    import engines.ergon_tasks  # noqa: F401

    connector = connectors.find("broker")("invoices")
    assert all(isinstance(connector, kind) for kind in (Connector, AsyncConnector))
    connector.close()


@pytest.fixture(params=["valkey", "rabbitmq"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    """Each broker in turn, to be stopped and started."""
    if request.param == "rabbitmq":
        yield request.getfixturevalue("our_rabbitmq")
        return
    valkey = Restartable(embedded.valkey, tmp_path)
    yield valkey
    valkey.stop()


def test_a_broker_that_is_restarted_is_found_again_and_what_was_in_hand_is_not_lost(
    broker: Restartable, queue: str
) -> None:
    connector = BrokerConnector(broker.address, queue, wait=1.0, lease=1.0, patience=120.0)
    connector.dispatch_transactions(numbered(3))
    done, *held = connector.fetch_transactions(3)
    connector.acknowledge(done, Success(None))
    connector.count()  # RabbitMQ confirms no acknowledgement, but reads it before what is asked next
    broker.stop()
    fetched: list[Transaction] = []
    fetching = threading.Thread(target=lambda: fetched.extend(connector.fetch_transactions(5)))
    fetching.start()
    broker.start()
    fetching.join(120)
    for transaction in held:
        connector.acknowledge(transaction, Success(None))
    connector.dispatch_transactions([Transaction("new", None)])
    fetched += connector.fetch_transactions(5)
    # RabbitMQ has taken back what was in hand, and gives it out again; with Valkey our leases have outlived it.
    assert {one.id for one in fetched} - {"1", "2"} == {"new"}
    assert broker.address.startswith("redis") or {"1", "2"} < {one.id for one in fetched}
    for transaction in fetched:
        connector.acknowledge(transaction, Success(None))
    connector.close()
    nobody = BrokerConnector(broker.address, queue, wait=1.5)
    assert nobody.fetch_transactions(5) == []
    nobody.close()


WORK = """
import sys
from pathlib import Path
from engines import ConsumerPolicy, ConsumerTask
from engines.connectors.broker import BrokerConnector
class Note(ConsumerTask):
    def process_transaction(self, transaction):
        with open(sys.argv[3], "a") as done:
            done.write(transaction.id + chr(10))
policy = ConsumerPolicy.from_dict({"loop": {"streaming": True, "batch": {"size": 5}, "concurrency": {"value": 2}}})
Note({"broker": BrokerConnector(sys.argv[1], sys.argv[2], lease=1.0)}).consume_transactions(policy)
"""


@pytest.mark.soak
def test_nothing_is_lost_however_often_consumers_are_killed(
    url: str, queue: str, connect: Connect, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    done.touch()
    connect().dispatch_transactions(numbered(5000))
    kills = 0
    while len(set(done.read_text().splitlines())) < 5000:
        before = done.stat().st_size
        with subprocess.Popen([sys.executable, "-c", WORK, url, queue, str(done)], cwd=ROOT) as process:
            eventually(lambda size=before: done.stat().st_size > size, "it works")  # type: ignore[misc]
            with suppress(subprocess.TimeoutExpired):
                process.wait(random.uniform(0.0, 1.0))  # noqa: S311 (any moment will do)
            process.kill()
        kills += 1
        assert kills < 200
    print(f"killed {kills} times, {len(done.read_text().splitlines()) - 5000} done twice")


@pytest.mark.parametrize("url", ["valkey"], indirect=True)
def test_a_worker_that_is_suspended_while_it_asks_whether_a_message_is_its_own_asks_again(connect: Connect) -> None:
    told: list[Transaction] = []
    connector = connect(lease=0.5, on_dead=lambda transaction, _: told.append(transaction))
    other = connect(lease=60.0, wait=0.2)
    connector.dispatch_transactions(numbered(1))
    [transaction] = connector.fetch_transactions(1)
    line = connector._owner._line
    confirm, taken = line.confirm, list[Transaction]()

    def confirm_and_be_suspended() -> None:
        confirm()
        until = time.monotonic() + LIMIT
        while not taken and time.monotonic() < until:
            taken.extend(other.fetch_transactions(1))

    line.confirm = confirm_and_be_suspended  # type: ignore[method-assign]
    assert not connector.acknowledge(transaction, Failure(TransactionException("no")))
    assert told == []
    assert [one.id for one in taken] == ["0"]
