"""A broker that falls silent while something is sent to it within a database transaction: that soon ends."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import kombu
import pytest
from django.db import connections

from engines import dead_letters, transactions
from engines.dead_letters import NotReplayableError, bulk
from engines.dead_letters.bulk import Terms
from engines.models import DeadLetter
from ergon_site.access.brokers import SILENCE_LIMIT
from ergon_site.celery import app
from providers import ProviderBadRequestError, outbox, tasks
from providers.models import OutboxLetter
from tests.faults.relay import Relay, relay_to
from tests.processes import LIMIT, eventually, process
from tests.providers.celery_tasks import tell
from tests.providers.scripted_providers import scripted

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "it is well again"
# In every message, and in nothing else that is sent.
MESSAGE = b"application/json"


@pytest.fixture(params=["valkey", "rabbitmq"])
def relay(request: pytest.FixtureRequest) -> Iterator[Relay]:
    """The way to each broker in turn."""
    valkey = os.environ["CELERY_BROKER_URL"]
    with relay_to(valkey if request.param == "valkey" else request.getfixturevalue("rabbitmq")) as between:
        yield between


@pytest.fixture
def letters(tmp_path: Path) -> list[DeadLetter]:
    """Of calls that were refused."""
    app.conf.task_always_eager = True
    for number in range(3):
        payload = {"script": ["status:400"], "log": str(tmp_path / "calls")}
        about = {"tenant_id": "t", "operation": "tell", "idempotency_key": str(number)}
        tell.apply_async(kwargs={**about, "payload": payload})
    app.conf.task_always_eager = False
    return list(DeadLetter.objects.order_by("pk"))


@pytest.fixture
def sent_by(relay: Relay, letters: list[DeadLetter], monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """The same, which the site's Celery app sends by; what it has sent before, and keeps, goes another way."""
    monkeypatch.setattr(tell, "queue", f"test.{uuid4().hex[:12]}")
    usual, app.conf.broker_write_url = app.conf.broker_write_url, relay.address
    yield relay
    app.conf.broker_write_url = usual


def in_time(act: Callable[[], Any]) -> BaseException | None:
    """How something ends that may wait for ever: its error, if it has one."""
    ends: list[BaseException | None] = []

    def run() -> None:
        try:
            act()
            ends.append(None)
        except Exception as error:  # noqa: BLE001 (looked at by the test)
            ends.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert ends, "it waits for ever"
    return ends[0]


def answer_again(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, and it may take as long as a busy machine needs."""
    for sender in (outbox, tasks):
        monkeypatch.setattr(sender, "SHORT_LIMIT", LIMIT)
    relay.resume()


def test_dead_letters_wait_for_a_broker_that_falls_silent(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "QUEUE", f"test.{uuid4().hex[:12]}")
    scripted(ProviderBadRequestError("no such keyword")).ask({"keyword": "tea"}, task_name="fetch_rank")
    relay.silence_at(MESSAGE)
    assert in_time(lambda: outbox.publish(broker_url=relay.address)) is not None
    assert OutboxLetter.objects.get().published_at is None
    answer_again(relay, monkeypatch)
    assert in_time(lambda: outbox.publish(broker_url=relay.address)) is None
    assert OutboxLetter.objects.get().published_at is not None


def test_a_letter_that_is_replayed_while_the_broker_is_silent_stays_open(
    sent_by: Relay, letters: list[DeadLetter], monkeypatch: pytest.MonkeyPatch
) -> None:
    def replay() -> None:
        transactions.replay_letter(letters[0].pk, by="ada", reason=WHY)

    sent_by.silence_at(MESSAGE)
    error = in_time(replay)
    assert isinstance(error, NotReplayableError)
    assert str(error).endswith("the broker does not answer")
    assert dead_letters.find(letters[0].pk).state == "open"
    answer_again(sent_by, monkeypatch)
    assert in_time(replay) is None
    assert dead_letters.find(letters[0].pk).state == "replayed"


def test_a_group_whose_broker_falls_silent_is_stopped_and_goes_on_later(
    sent_by: Relay, letters: list[DeadLetter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a batch waits for it, and the others do not."""
    replayed = DeadLetter.objects.filter(state="replayed")
    operation = bulk.begin("replay", letters[0].group_id, Terms(canary=2), by="ada", reason=WHY)
    sent_by.silence_at(MESSAGE)
    assert in_time(bulk.advance) is None
    stopped = bulk.find(operation.pk)
    assert (stopped.state, stopped.failed, replayed.count()) == ("stopped", 2, 0)
    assert stopped.note == "the broker does not answer"
    bulk.turn(operation.pk, "running", by="ada", reason="let us see")
    assert in_time(bulk.advance) is None
    stopped = bulk.find(operation.pk)
    assert (stopped.state, stopped.failed) == ("stopped", 2)
    assert stopped.note == "the broker cannot be reached (OperationalError)"
    answer_again(sent_by, monkeypatch)
    bulk.turn(operation.pk, "running", by="ada", reason="it answers again")
    assert in_time(bulk.advance) is None
    assert (bulk.find(operation.pk).state, replayed.count()) == ("done", 1)


@pytest.mark.soak
@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_a_celery_worker_keeps_its_idle_connection_and_goes_on_after_a_silence(
    pool: str, relay: Relay, tmp_path: Path
) -> None:
    log, mark = tmp_path / "log", tmp_path / "calls"
    queue = f"test.{uuid4().hex[:12]}"
    worker = ("celery", "-A", "tests.providers.celery_tasks", "worker", "-P", pool, "-c", "1", "-Q", queue)

    def is_run(count: int) -> bool:
        return mark.exists() and len(mark.read_text().splitlines()) == count

    def send(count: int) -> None:
        payload = {"script": ["fine"] * 2, "log": str(mark), "number": count}
        with kombu.Connection(relay.address) as line:
            asked = {"tenant_id": "t", "operation": "tell", "payload": payload}
            tell.apply_async(kwargs=asked, connection=line, queue=queue)
        eventually(lambda: is_run(count), f"{count} are run")

    with process(*worker, log=log, CELERY_BROKER_URL=relay.address):
        send(1)
        time.sleep(2.5 * SILENCE_LIMIT)
        assert "lost" not in log.read_text()
        relay.silence()
        time.sleep(2.5 * SILENCE_LIMIT)
        relay.resume()
        send(2)
