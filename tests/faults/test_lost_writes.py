"""A Valkey that crashes and forgets its last writes: what it gives out again belongs to who was given it last."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from engines import Failure, Success, Transaction, TransactionException
from engines.connectors.broker import BrokerConnector
from engines.models import DeadLetter
from ergon_site import embedded
from tests.engines.test_broker import dead_messages, numbered
from tests.faults import broker_tasks
from tests.faults.test_brokers import NOT_COUNTED, Watched, consuming, ended, freeze, make, publish, runs
from tests.processes import LIMIT, eventually
from tests.servers import Restartable

pytestmark = pytest.mark.once

QUEUE = "test.lost-writes"
# None lapses while a test runs.
LEASE = 10 * LIMIT


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Restartable]:
    valkey = Restartable(embedded.valkey, tmp_path)
    yield valkey
    valkey.stop()


def lose_writes(server: Restartable) -> None:
    """From now on nothing reaches the disk, as in the last second before a machine fails."""
    with closing(redis.Redis.from_url(server.address)) as client:
        client.config_set("appendonly", "no")


def crash(server: Restartable) -> None:
    """Kill it, and start it with what had reached the disk."""
    with closing(redis.Redis.from_url(server.address)) as client:
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
    server.stop()
    server.start()


def held(server: Restartable) -> int:
    with closing(redis.Redis.from_url(server.address)) as client:
        return int(client.hlen(f"ergon:held:{QUEUE}"))


def put_at_head(server: Restartable, transaction: Transaction) -> None:
    """As a release does, so that the next fetch begins with another message than the last one did."""
    with closing(redis.Redis.from_url(server.address)) as client:
        client.rpush(QUEUE, transaction.to_json())


def connect(server: Restartable, queue: str = QUEUE, **options: Any) -> BrokerConnector:
    return BrokerConnector(server.address, queue, wait=1.0, lease=LEASE, **options)


def test_after_a_crash_that_lost_writes_nobody_settles_what_another_worker_was_given(server: Restartable) -> None:
    lost, told = list[str](), list[str]()
    first = connect(server, on_dead=lambda transaction, _: told.append(transaction.id))
    first.on_lost(lambda transactions: lost.extend(one.id for one in transactions))
    with closing(first), closing(connect(server)) as second:
        second.dispatch_transactions(numbered(4))
        lose_writes(server)
        succeeds, fails, is_put_back, waits = first.fetch_transactions(4)
        crash(server)
        put_at_head(server, Transaction("urgent", None))
        given = second.fetch_transactions(4)
        assert [one.id for one in given] == ["urgent", "0", "1", "2"]
        assert not first.acknowledge(succeeds, Success(None))
        assert not first.acknowledge(fails, Failure(TransactionException("too late")))
        first.release([is_put_back])
        assert (first.given_back, first.begin(waits), first.is_lost(waits)) == (0, False, True)
        assert (lost, told) == (["2", "3"], [])
        first.close()
        assert held(server) == 4
        assert [second.acknowledge(one, Success(None)) for one in given] == [True] * 4
        assert [one.id for one in second.fetch_transactions(4)] == ["3"]
    assert dead_messages(server.address, QUEUE) == []


def test_a_worker_is_not_given_a_message_under_the_name_of_one_that_it_held_before_a_crash(
    server: Restartable,
) -> None:
    with closing(connect(server)) as connector:
        connector.dispatch_transactions(numbered(1))
        lose_writes(server)
        (before,) = connector.fetch_transactions(1)
        crash(server)
        put_at_head(server, Transaction("urgent", None))
        urgent, after = connector.fetch_transactions(2)
        assert not connector.acknowledge(before, Success(None))
        assert (urgent.id, after.id, held(server)) == ("urgent", "0", 2)
        assert connector.acknowledge(urgent, Success(None))
        assert connector.acknowledge(after, Success(None))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", ["tests.first_fails", "tests.first_fails_async"])
def test_after_a_crash_that_lost_writes_a_consumer_begins_nothing_that_another_was_given(
    task: str, server: Restartable, tmp_path: Path
) -> None:
    pipeline, mark, gate = make(task), tmp_path / "mark", tmp_path / "gate"
    payload = {"mark": str(mark), "gate": str(gate), "then": {}}
    publish(server.address, pipeline, *({"id": f"m{n}", **payload} for n in range(20)))
    lose_writes(server)
    with consuming(pipeline, server.address) as frozen, closing(connect(server, pipeline.name)) as other:
        watched = Watched(frozen)
        eventually(lambda: len(runs(mark)) == 1, "the first has begun, and the others are in reserve")
        freeze(frozen)
        frozen_at = time.monotonic()
        crash(server)
        given = other.fetch_transactions(20)
        eventually(lambda: time.monotonic() > frozen_at + broker_tasks.LEASE, "it has to ask what is its own")
        gate.touch()
        frozen.send_signal(signal.SIGCONT)
        eventually(lambda: bool(watched.has_said("leases_lost")) or len(runs(mark)) > 1, "it has asked")
        assert [other.acknowledge(one, Success(None)) for one in given] == [True] * 20
        publish(server.address, pipeline, {"id": "new", **payload})
        eventually(lambda: "new" in dict(runs(mark)) and ended(pipeline)[0] > 0, "it works on")
        assert watched.stop() == 0
    assert [name for name, _ in runs(mark)] == ["m0", "new"]
    assert watched.counts() in NOT_COUNTED
    assert ended(pipeline) == (1, 0)
    assert not DeadLetter.objects.exists()
