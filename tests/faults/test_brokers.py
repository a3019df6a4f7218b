"""What consumers of a broker survive, with real processes: frozen workers, outages, silence, poison, orders to end."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kombu
import psutil
import pytest
from django.db import connection

from engines import Transaction
from engines.connectors.broker import BrokerConnector, on_rabbitmq
from engines.connectors.broker.on_rabbitmq import TRUSTED, RabbitLine
from engines.models import DeadLetter, Pipeline
from engines.reads import status
from ergon_site import embedded
from facts import ledger, provisioning
from facts.models import Consumer
from tests.durable_transactions import consume, consumer, make_policy, states, submit, wait_until_started
from tests.engines.test_broker import dead_messages
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.faults.broker_tasks import PATIENCE
from tests.faults.relay import Relay, relay_to
from tests.processes import LIMIT, eventually
from tests.servers import Restartable

pytestmark = pytest.mark.django_db(transaction=True)

TASKS = "tests.tasks,tests.faults.broker_tasks"
ONE_SLOT = {
    "loop": {"concurrency": {"value": 1}, "batch": {"size": 20}, "empty_queue": {"backoff": 0.05, "backoff_cap": 0.2}},
}


# What came of a lost message is left out, or known to have come too late; what was done afterwards counts.
NOT_COUNTED = [{"succeeded": 1, "failed": 0, "stale": stale} for stale in (0, 1)]


@pytest.fixture(params=["valkey", "rabbitmq"])
def address(request: pytest.FixtureRequest) -> str:
    """The address of each broker in turn."""
    if request.param == "valkey":
        return os.environ["CELERY_BROKER_URL"]
    return str(request.getfixturevalue("rabbitmq"))


@pytest.fixture(params=["valkey", "rabbitmq"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    """Each broker in turn, to be stopped and started."""
    if request.param == "rabbitmq":
        yield request.getfixturevalue("our_rabbitmq")
        return
    valkey = Restartable(embedded.valkey, tmp_path)
    yield valkey
    valkey.stop()


@pytest.fixture
def relay(address: str) -> Iterator[Relay]:
    with relay_to(address) as between:
        yield between


def make(task: str = "tests.act", connector: str = "hasty-broker", policy: Any = None, **plan: Any) -> Pipeline:
    name = f"queue-{uuid.uuid4().hex[:8]}"
    policy = make_policy("brokers", {**ONE_SLOT, **(policy or {})}, plan.pop("kind", "consumer"))
    return make_pipeline(name, task, connector=connector, policy=policy, **plan)


def publish(address: str, pipeline: Pipeline, *payloads: dict[str, Any]) -> None:
    with closing(BrokerConnector(address, pipeline.name)) as connector:
        connector.dispatch_transactions([Transaction(f"m{n}", payload) for n, payload in enumerate(payloads)])


def consuming(pipeline: Pipeline, address: str, *arguments: str) -> Any:
    return consumer(pipeline.name, *arguments, CELERY_BROKER_URL=address, ERGON_TASKS=TASKS)


def ended(pipeline: Pipeline) -> tuple[int, int]:
    totals = status.totals_by_pipeline().get(pipeline.pk, {})
    return totals.get("succeeded", 0), totals.get("failed", 0)


def runs(mark: Path) -> list[tuple[str, int]]:
    """Which messages were begun, and by which processes."""
    lines = mark.read_text().splitlines() if mark.exists() else []
    return [(line.split()[0], int(line.split()[1])) for line in lines]


class Frozen:
    """A consumer that is stopped in the middle of a message, until what it holds has been given to another."""

    def __init__(self, process: subprocess.Popen[str], relay: Relay) -> None:
        self._process, self._relay = process, relay

    def __enter__(self) -> None:
        freeze(self._process)
        if self._relay.address.startswith("amqp"):
            # RabbitMQ takes back what a lost connection held; Valkey waits for the lease to lapse.
            self._relay.cut()

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGCONT)


def freeze(process: subprocess.Popen[str]) -> None:
    """Stop a process, but not while it writes to SQLite: nobody else could write until it goes on."""
    while True:
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "it is frozen")
        if not is_locked():
            return
        process.send_signal(signal.SIGCONT)


def is_locked() -> bool:
    if connection.vendor != "sqlite":
        return False
    with closing(sqlite3.connect(str(connection.settings_dict["NAME"]), timeout=0.5, uri=True)) as probe:
        try:
            probe.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        probe.rollback()
    return False


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """How it ends, and what it told."""
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def last_counts(output: str) -> dict[str, int]:
    stopped = [json.loads(line) for line in output.splitlines() if '"stopped"' in line][-1]
    return {name: stopped[name] for name in ("succeeded", "failed", "stale")}


@pytest.mark.once
@pytest.mark.parametrize(
    ("task", "then"),
    [
        ("tests.first_fails", {"fail": "too late"}),
        ("tests.first_fails", {}),
        ("tests.first_fails_async", {"fail": "too late"}),
    ],
)
def test_the_outcome_of_a_worker_that_lost_its_message_while_frozen_tells_nobody(
    task: str, then: dict[str, Any], address: str, relay: Relay, tmp_path: Path
) -> None:
    pipeline, mark, gate = make(task), tmp_path / "mark", tmp_path / "gate"
    publish(address, pipeline, {"id": "m", "mark": str(mark), "gate": str(gate), "then": then})
    with consuming(pipeline, relay.address) as frozen:
        eventually(lambda: len(runs(mark)) == 1, "it has begun")
        with Frozen(frozen, relay), consuming(pipeline, address) as other:
            eventually(lambda: ended(pipeline) == (1, 0), "another worker has done it")
            gate.touch()
            assert stop(other)[0] == 0
        publish(address, pipeline, {"id": "next", "mark": str(mark), "gate": str(gate), "then": {}})
        eventually(lambda: ended(pipeline)[0] == 2, "it works on")
        code, output, _ = stop(frozen)
    assert code == 0
    assert last_counts(output) in NOT_COUNTED
    assert ended(pipeline) == (2, 0)
    assert not DeadLetter.objects.exists()
    assert dead_messages(address, pipeline.name) == []


@pytest.mark.once
def test_however_lately_rabbitmq_has_answered_what_a_closed_connection_held_is_not_ours(
    rabbitmq: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_rabbitmq, "TRUSTED", 10 * LIMIT)
    pipeline = make()
    publish(rabbitmq, pipeline, {"id": "m"})
    with relay_to(rabbitmq) as relay:
        line = RabbitLine(relay.address, pipeline.name, f"{pipeline.name}.dead")
        line.begin(1)
        (delivery,) = line.collect(LIMIT)
        assert line.is_ours(delivery) is True
        relay.cut()
        eventually(lambda: line.is_ours(delivery) is None, "it has to be asked for")
        with pytest.raises(line.broken):
            line.acknowledge([delivery])
        line.drop()
        assert line.is_ours(delivery) is False


@pytest.mark.once
@pytest.mark.parametrize("task", ["tests.first_fails", "tests.first_fails_async"])
def test_a_worker_that_was_frozen_begins_nothing_that_another_was_given_meanwhile(
    task: str, address: str, relay: Relay, tmp_path: Path
) -> None:
    pipeline, mark, gate = make(task), tmp_path / "mark", tmp_path / "gate"
    payload = {"mark": str(mark), "gate": str(gate), "then": {}}
    with consuming(pipeline, relay.address) as frozen:
        wait_until_started(frozen)
        publish(address, pipeline, *({"id": f"m{n}", **payload} for n in range(20)))
        eventually(lambda: len(runs(mark)) == 1, "the first has begun, and the others are in reserve")
        with Frozen(frozen, relay), consuming(pipeline, address) as other:
            gate.touch()
            eventually(lambda: ended(pipeline) == (20, 0), "another worker has done all of them")
            assert stop(other)[0] == 0
        publish(address, pipeline, {"id": "new", **payload})
        eventually(lambda: "new" in dict(runs(mark)), "it works on")
        assert stop(frozen)[0] == 0
    begun = Counter(process for _, process in runs(mark))
    assert begun[frozen.pid] == 2
    assert not DeadLetter.objects.exists()


class Watched:
    """A consumer's log, read while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self.lines = process, list[str]()
        self._readers = [
            threading.Thread(target=self._read, args=[pipe], daemon=True) for pipe in (process.stdout, process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def has_said(self, word: str) -> int:
        return sum(word in line for line in self.lines)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait(60)
        for reader in self._readers:
            reader.join(10)
        return code

    def counts(self) -> dict[str, int]:
        return last_counts("\n".join(line for line in self.lines if line.startswith("{")))

    def _read(self, pipe: Any) -> None:
        self.lines.extend(pipe)


@pytest.mark.once
def test_an_outage_of_the_broker_is_waited_out_while_other_pipelines_work(server: Restartable) -> None:
    pipeline, durable = make(), make_pipeline("durable", policy="brokers")
    publish(server.address, pipeline, {"n": 1})
    with consumer(pipeline.name, "durable", CELERY_BROKER_URL=server.address, ERGON_TASKS=TASKS) as process:
        watched = Watched(process)
        eventually(lambda: ended(pipeline) == (1, 0), "it works")
        server.stop()
        try:
            eventually(lambda: watched.has_said("broker_lost") == 1, "the retry is told")
            # Longer than the connector's patience.
            (uid,) = submit(durable, sleep=3 * PATIENCE)
            eventually(lambda: states(uid) == ["succeeded"], "other pipelines go on")
            assert process.poll() is None
        finally:
            server.start()
        publish(server.address, pipeline, {"n": 2})
        eventually(lambda: ended(pipeline) == (2, 0), "it works again")
        assert watched.stop() == 0
    assert (watched.has_said("broker_lost"), watched.has_said("broker_found_again")) == (1, 1)


@pytest.mark.once
def test_an_outcome_that_came_during_an_outage_is_kept_for_the_broker(server: Restartable, tmp_path: Path) -> None:
    then = {"fail": "broken"}
    pipeline, mark, gate = make("tests.first_fails", "broker"), tmp_path / "mark", tmp_path / "gate"
    publish(server.address, pipeline, {"id": "m", "mark": str(mark), "gate": str(gate), "then": then})
    with consuming(pipeline, server.address) as process:
        watched = Watched(process)
        eventually(lambda: len(runs(mark)) == 1, "it has begun")
        server.stop()
        try:
            gate.touch()
            eventually(lambda: watched.has_said("broker_lost") == 1, "the retry is told")
        finally:
            server.start()
        eventually(lambda: sum(ended(pipeline)) == 1, "it has ended")
        assert watched.stop() == 0
    assert runs(mark)[0] == ("m", process.pid)
    if server.address.startswith("redis"):
        # The lease has outlived the outage, and with it the only run.
        assert (len(runs(mark)), watched.counts()["stale"], ended_badly()) == (1, 0, ["m0"])
    else:
        # RabbitMQ has taken it back with the connection: what came of the first run is told to nobody.
        assert (len(runs(mark)), watched.counts() in NOT_COUNTED, ended_badly()) == (2, True, [])


def ended_badly() -> list[str]:
    return list(DeadLetter.objects.values_list("uid", flat=True))


NOWHERE = {"redis": "redis://127.0.0.1:1/0", "amqp": "amqp://127.0.0.1:1/%2F"}


@pytest.mark.once
@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_drain_that_cannot_reach_its_broker_ends_with_69(scheme: str) -> None:
    pipeline = make()
    run = consume(pipeline.name, "--drain", CELERY_BROKER_URL=NOWHERE[scheme], ERGON_TASKS=TASKS)
    assert run.code == 69
    assert "does not answer" in run.errors


@pytest.mark.once
def test_a_wrong_password_ends_the_process_in_words(address: str) -> None:
    wrong = address.replace(urlsplit(address).password or "", "wrong-one")
    run = consume(make().name, CELERY_BROKER_URL=wrong, ERGON_TASKS=TASKS)
    assert run.code == 1
    assert "refuses the connection" in run.errors
    assert "wrong-one" not in run.errors


@pytest.mark.once
@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_consumer_that_has_nothing_in_hand_is_stopped_during_an_outage_with_0(scheme: str) -> None:
    with consuming(make(), NOWHERE[scheme], "--grace", "20") as process:
        watched = Watched(process)
        eventually(lambda: watched.has_said("broker_lost") == 1, "the retry is told")
        assert watched.stop() == 0


@pytest.mark.once
@pytest.mark.parametrize("task", ["tests.first_fails", "tests.first_fails_async"])
def test_a_consumer_that_is_stopped_while_the_broker_is_silent_says_what_it_could_not_tell(
    task: str, address: str, relay: Relay, tmp_path: Path
) -> None:
    pipeline, mark, gate = make(task), tmp_path / "mark", tmp_path / "gate"
    publish(address, pipeline, {"id": "m", "mark": str(mark), "gate": str(gate), "then": {}})
    with consuming(pipeline, relay.address, "--grace", "1") as process:
        watched = Watched(process)
        eventually(lambda: len(runs(mark)) == 1, "it has begun")
        relay.silence()
        time.sleep(2 * TRUSTED)  # for so long after its last answer RabbitMQ is taken to know what it is told
        gate.touch()
        began = time.monotonic()
        assert watched.stop() == 69, watched.lines
        # The grace, and a few seconds to leave.
        assert time.monotonic() - began < 20
    assert any("ergon: " in line and "broker" in line for line in watched.lines), watched.lines
    assert ended(pipeline) == (0, 0)
    relay.cut()
    with consuming(pipeline, address) as other:
        eventually(lambda: ended(pipeline) == (1, 0), "another worker is given it")
        assert stop(other)[0] == 0
    assert len(runs(mark)) == 2


@pytest.mark.once
def test_a_consumer_whose_broker_falls_silent_goes_on_once_it_answers(
    address: str, relay: Relay, tmp_path: Path
) -> None:
    pipeline = make()
    publish(address, pipeline, {"n": 1})
    with consuming(pipeline, relay.address) as process:
        watched = Watched(process)
        eventually(lambda: ended(pipeline) == (1, 0), "it works")
        relay.silence()
        eventually(lambda: watched.has_said("broker_lost") == 1, "the silence is noticed", within=60)
        relay.cut()
        relay.resume()
        publish(address, pipeline, {"n": 2})
        eventually(lambda: ended(pipeline) == (2, 0), "it works again")
        assert watched.stop() == 0


@pytest.mark.once
@pytest.mark.parametrize("server", ["valkey"], indirect=True)
def test_a_producer_waits_for_its_broker_no_longer_than_an_attempt_may_take(server: Restartable) -> None:
    for timeout in (3.0, 30.0):  # the second for a machine that stood still
        message = failure_in_an_outage(server, timeout)
        if "does not answer" in message:
            break
    assert "does not answer" in message


def failure_in_an_outage(server: Restartable, timeout: float) -> str:
    """What a dead letter says of a broker that was away; a producer works before the outage, and again after it."""
    policy = {"steps": {"produce": {"retry": {"max_attempts": 2, "timeout": timeout}}}}
    pipeline = make("tests.publish", direction="outbound", kind="producer", policy={"loop": {}, **policy})
    with consumer(pipeline.name, command="produce", CELERY_BROKER_URL=server.address, ERGON_TASKS=TASKS) as process:
        watched = Watched(process)
        (first,) = submit(pipeline, n=1)
        eventually(lambda: states(first) == ["succeeded"], "it works")
        server.stop()
        try:
            (lost,) = submit(pipeline, n=2)
            eventually(lambda: states(lost) == ["failed"], "its attempts are spent")
            (waiting,) = submit(pipeline, n=3)
            eventually(lambda: states(waiting) == ["running"], "the next one waits for the broker")
        finally:
            server.start()
        eventually(lambda: states(waiting)[0] in ("succeeded", "failed"), "it has ended")
        (last,) = submit(pipeline, n=4)
        eventually(lambda: states(last) == ["succeeded"], "it works again")
        assert watched.stop() == 0
    with closing(BrokerConnector(server.address, pipeline.name, wait=0.5)) as connector:
        published = {one.id for one in connector.fetch_transactions(10)}
    assert {first, last} <= published
    return DeadLetter.objects.get(uid=lost).message


@pytest.mark.once
@pytest.mark.parametrize(
    ("address", "queue_type"), [("valkey", ""), ("rabbitmq", "classic"), ("rabbitmq", "quorum")], indirect=["address"]
)
def test_a_message_that_kills_its_worker_every_time_is_buried_and_its_neighbours_are_not(
    address: str, queue_type: str, tmp_path: Path
) -> None:
    pipeline, mark = make(), tmp_path / "mark"
    declare(address, pipeline.name, queue_type)
    good = [{"id": f"good-{n}", "mark": str(mark)} for n in range(6)]
    publish(address, pipeline, *good[:3], {"id": "bad", "mark": str(mark), "kill": True}, *good[3:])
    with surviving(pipeline.name, CELERY_BROKER_URL=address) as last:
        eventually(lambda: {one["id"] for one in good} < {name for name, _ in runs(mark)}, "the rest is done")
        assert stop(last)[0] == 0
    letter = DeadLetter.objects.get()
    assert (letter.uid, letter.error_type) == ("m3", "PoisonTransaction")
    assert letter.payload == {"id": "bad", "mark": str(mark), "kill": True}
    begun = Counter(name for name, _ in runs(mark))
    assert begun["bad"] in ({3, 4} if queue_type else {3})
    (message,) = dead_messages(address, pipeline.name)
    assert message.headers["ergon-error-type"] == "PoisonTransaction"
    assert Transaction.from_json(message.body).payload["id"] == "bad"


@contextmanager
def surviving(*arguments: str, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """One consumer after the other, each killed by what it runs, until one has buried that."""
    while True:
        with consumer(*arguments, ERGON_TASKS=TASKS, **changes) as process:
            eventually(lambda: DeadLetter.objects.exists() or process.poll() is not None, "it is killed, or buries")
            if process.poll() is None:
                yield process
                return


def declare(address: str, queue: str, queue_type: str) -> None:
    """Make a queue of a kind that only RabbitMQ has; it gives up on a quorum that a busy machine elects too slowly."""
    if queue_type:
        eventually(lambda: is_declared(address, queue, queue_type), "the queue is declared")


def is_declared(address: str, queue: str, queue_type: str) -> bool:
    with kombu.Connection(address, connect_timeout=60) as broker:
        try:
            channel = broker.channel()
            channel.queue_declare(queue, durable=True, auto_delete=False, arguments={"x-queue-type": queue_type})
        except broker.connection_errors:
            return False
        return True


@pytest.mark.parametrize("task", ["tests.first_fails", "tests.first_fails_async"])
def test_a_reader_of_facts_that_was_frozen_begins_nothing_more_and_its_failure_tells_nobody(
    task: str, tmp_path: Path
) -> None:
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    pipeline = make_pipeline("erp", task, connector="hasty-facts", policy=make_policy("brokers", ONE_SLOT))
    said = {"mark": str(mark), "gate": str(gate), "then": {"fail": "too late"}}
    with consumer("erp", ERGON_TASKS=TASKS) as frozen:
        wait_until_started(frozen)
        ledger.append_many(draft(n, object_json={"id": f"f{n}", **said}) for n in range(10))
        eventually(lambda: len(runs(mark)) == 1, "the first has begun")
        freeze(frozen)
        try:
            with consumer("erp", ERGON_TASKS=TASKS) as other:
                # It begins the others first of all, and would fail at each of them: it is not to.
                mark.write_text("".join(f"f{n} {frozen.pid} 0\n" for n in range(10)))
                # On a busy machine its term may be over as well; then it does some of them once more.
                eventually(lambda: Consumer.objects.get().cursor == 9, "another process has done all of them")
                assert stop(other)[0] == 0
        finally:
            gate.touch()
            frozen.send_signal(signal.SIGCONT)
        ledger.append(draft(10, object_json={"id": "f0", **said}))
        eventually(lambda: Consumer.objects.get().cursor == 10, "it works on")
        code, output, _ = stop(frozen)
    assert code == 0
    assert (last_counts(output)["failed"], ended(pipeline)[1]) == (0, 0)
    assert not DeadLetter.objects.exists()


def test_a_fact_that_kills_its_worker_every_time_is_buried_and_the_cursor_moves_on(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    make_pipeline("erp", "tests.act_on_fact", connector="hasty-facts", policy=make_policy("brokers", ONE_SLOT))
    said = [{"id": f"f{n}", "mark": str(mark), **({"kill": True} if n == 3 else {})} for n in range(7)]
    ledger.append_many(draft(n, object_json=one) for n, one in enumerate(said))
    with surviving("erp") as last:
        eventually(lambda: Consumer.objects.get().cursor == 6, "all have ended")
        assert stop(last)[0] == 0
    letter = DeadLetter.objects.get()
    assert (letter.error_type, letter.payload) == ("PoisonTransaction", draft(3, object_json=said[3]))
    assert letter.message.startswith("delivered again 3 times")
    assert {name for name, _ in runs(mark)} == {f"f{n}" for n in range(7) if n != 3}
    assert Consumer.objects.get().started is None


@pytest.mark.soak
@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_outage_of_most_of_a_minute_is_waited_out_with_the_connector_that_comes_with_ergon(
    processes: str, server: Restartable
) -> None:
    pipeline, durable = make(connector="broker"), make_pipeline("durable", policy="brokers")
    names = (pipeline.name, "durable", "--processes", processes)
    with consumer(*names, CELERY_BROKER_URL=server.address, ERGON_TASKS=TASKS) as process:
        watched = Watched(process)
        publish(server.address, pipeline, {"n": 1})
        eventually(lambda: ended(pipeline) == (1, 0), "it works")
        server.stop()
        try:
            for _ in range(9):
                (uid,) = submit(durable, sleep=5)
                eventually(lambda uid=uid: states(uid) == ["succeeded"], "other pipelines go on")  # type: ignore[misc]
            assert process.poll() is None
        finally:
            server.start()
        publish(server.address, pipeline, {"n": 2})
        eventually(lambda: ended(pipeline) == (2, 0), "it works again")
        eventually(lambda: watched.has_said("broker_found_again") == int(processes), "all have found it again")
        assert watched.stop() == 0
    assert watched.has_said("broker_lost") == watched.has_said("broker_found_again") == int(processes)


@pytest.mark.soak
def test_workers_that_are_frozen_cut_off_and_killed_at_random_lose_nothing_and_tell_no_failure(
    address: str, tmp_path: Path
) -> None:
    pipeline, mark, how_many = make(), tmp_path / "mark", 600
    publish(address, pipeline, *({"id": f"m{n}", "mark": str(mark), "sleep": 0.05} for n in range(how_many)))
    chance = random.Random(13)  # noqa: S311 (not a secret)
    for _ in range(8):
        with relay_to(address) as relay, consuming(pipeline, relay.address) as one, consuming(pipeline, address) as two:
            wait_until_started(one)
            wait_until_started(two)
            with Frozen(one, relay):
                done = len(runs(mark))
                eventually(lambda done=done: len(runs(mark)) > done + 30, "the other goes on")  # type: ignore[misc]
            time.sleep(chance.uniform(0.1, 1.0))
            one.kill() if chance.random() < 0.5 else relay.cut()
            stop(two)
    with consuming(pipeline, address) as last, closing(BrokerConnector(address, pipeline.name)) as queue:
        eventually(lambda: len({name for name, _ in runs(mark)}) == how_many, "everything has run", within=120)
        eventually(lambda: queue.count() == 0, "nothing waits")
        assert stop(last)[0] in (0, 3)
    assert not DeadLetter.objects.exists()
    assert dead_messages(address, pipeline.name) == []
    print(f"{len(runs(mark)) - how_many} of {how_many} ran twice")
