"""Calls as Celery tasks: real workers on Valkey and on RabbitMQ."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import kombu
import pytest
from django.db import connection
from django_celery_results.models import TaskResult

from engines import transactions
from engines.models import DeadLetter
from providers import calls, outbox
from providers.core.exchange import Who
from providers.models import Gate, IdempotencyClaim, OutboxLetter, ProviderExecutionMetric, TaskExecution
from tests.processes import eventually, free_port, process
from tests.providers.celery_tasks import (
    QUEUE,
    SECRET,
    tell,
    tell_brittle,
    tell_brittle_for_long,
    tell_cushioned,
    tell_hasty,
    tell_in_time,
    tell_in_turn,
    tell_patient,
    tell_words,
)
from tests.providers.test_idempotency_and_letters import SEED_FIELDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

LOGGED = SEED_FIELDS - {"task_name", "error_type", "error_message", "attempts", "occurred_at"} | {"attempt", "outcome"}
WORKER = ("celery", "-A", "tests.providers.celery_tasks", "worker", "--concurrency", "2", "--loglevel", "INFO")


class Broker:
    """A broker, and the worker that takes tasks from it."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self.log = url, log

    def send(self, task: Any, *args: Any, task_id: str | None = None, queue: str = QUEUE, **kwargs: Any) -> str:
        with kombu.Connection(self.url) as connection:
            sent = task.apply_async(args, kwargs, connection=connection, task_id=task_id, queue=queue)
        return str(sent.id)

    def dead(self) -> list[Any]:
        """Takes all messages out of the queue of dead letters."""
        found = []
        with kombu.Connection(self.url) as connection, connection.channel() as channel:
            kombu.Queue(outbox.QUEUE, durable=True)(channel).declare()
            while message := kombu.Queue(outbox.QUEUE, channel=channel).get(no_ack=True):
                found.append(message)
        return found

    def lines(self, correlation_id: str) -> list[dict[str, Any]]:
        """What the worker logged of an execution."""
        whole = self.log.read_text().rpartition("\n")[0]  # of the last line there may be no more than a beginning
        told = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [one for one in told if one.get("correlation_id") == correlation_id]


@pytest.fixture(scope="module", params=["valkey", "rabbitmq"])
def broker(request: pytest.FixtureRequest, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A worker on each broker in turn; it starts while the first tests send."""
    valkey = request.param == "valkey"
    url = os.environ["CELERY_BROKER_URL"] if valkey else request.getfixturevalue("rabbitmq")
    log = tmp_path_factory.mktemp("worker") / "log"
    with process(*WORKER, "-Q", QUEUE, "--without-gossip", "--without-mingle", log=log, CELERY_BROKER_URL=url):
        yield Broker(url, log)


@pytest.fixture
def tenant() -> str:
    return str(uuid4())


@pytest.fixture
def request_of(tenant: str, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """What a task is sent; every name is another request with another file."""

    def make(*script: str, name: str = "calls") -> dict[str, Any]:
        payload = {"script": list(script), "log": str(tmp_path / name)}
        return {"tenant_id": tenant, "operation": "tell", "payload": payload}

    return make


def called(request: dict[str, Any]) -> int:
    log = Path(request["payload"]["log"])
    return len(log.read_text().splitlines()) if log.exists() else 0


def ended(task_id: str, status: str = "SUCCESS") -> TaskResult:
    rows = TaskResult.objects.filter(task_id=task_id, status=status)
    eventually(rows.exists, f"{task_id} has ended as {status}")
    return rows.get()


def states(task_id: str) -> list[str]:
    return list(TaskExecution.objects.filter(celery_task_id=task_id).order_by("id").values_list("state", flat=True))


def wait_for_its_first_end(task_id: str) -> None:
    """However the first execution of a task has ended; others may have followed."""
    eventually(lambda: states(task_id)[:1] not in ([], ["started"]), f"{task_id} was executed")


Make = Callable[..., dict[str, Any]]


def test_provider_task_retries_transient_errors_and_succeeds_before_exhaustion(
    broker: Broker, request_of: Make
) -> None:
    request = request_of("timeout", "status:503", "fine")
    task_id = broker.send(tell, **request)
    assert json.loads(ended(task_id).result)["word"] == "fine"
    attempts = ProviderExecutionMetric.objects.order_by("attempt_number")
    assert list(attempts.values_list("outcome", "reason_code")) == [
        ("retry", "timeout"),
        ("retry", "dependency_unavailable"),
        ("success", None),
    ]
    [row] = TaskExecution.objects.all()
    assert {attempt.task_execution_id for attempt in attempts} == {row.pk}
    assert (row.state, row.task_name, row.celery_task_id) == ("succeeded", "tests.tell", task_id)
    assert not OutboxLetter.objects.exists()


def test_provider_task_exhausts_retries_and_emits_dead_letter_payload(
    broker: Broker, request_of: Make, tenant: str
) -> None:
    request = request_of("timeout")
    task_id = broker.send(tell, **request)
    failed = ended(task_id, "FAILURE")
    assert json.loads(failed.result)["exc_type"] == "ProviderTimeoutError"
    eventually(OutboxLetter.objects.filter(published_at__isnull=False).exists, "it is published")
    [message] = [one for one in broker.dead() if json.loads(one.body)["correlation_id"] == task_id]
    letter = OutboxLetter.objects.get()
    told = json.loads(message.body)
    assert set(told) == SEED_FIELDS
    assert told == letter.payload
    assert message.properties["message_id"] == str(letter.pk)
    about = {"tenant_id": tenant, "task_name": "tests.tell", "provider_name": "told", "operation": "tell"}
    assert told.items() >= about.items()
    assert (told["reason_code"], told["attempts"], told["error_type"]) == ("timeout", 3, "ProviderTimeoutError")
    assert (called(request), DeadLetter.objects.get().pk) == (3, letter.dead_letter_id)
    assert states(task_id) == ["failed"]


def test_a_success_is_kept_while_the_database_is_away_and_is_not_called_for_again(
    broker: Broker, request_of: Make
) -> None:
    request = request_of("win:3")
    task_id = broker.send(tell_in_time, **request)
    assert json.loads(ended(task_id).result)["word"] == "win:3"
    assert called(request) == 1
    # Another process may have been refused meanwhile: the key is held until the journal is replayed.
    assert ProviderExecutionMetric.objects.filter(outcome="success").count() == 1
    assert IdempotencyClaim.objects.get().state == "succeeded"
    assert states(task_id)[-1] == "succeeded"
    assert broker.log.read_text().count("provider outcome kept in the journal") == 1


def test_breaker_fast_fails_while_open_and_recovers_after_cooldown_and_probe(broker: Broker, request_of: Make) -> None:
    for task in (tell_brittle, tell_brittle_for_long):  # the second for a machine that stood still
        first, second = (request_of(word, name=f"{word} {task.name}") for word in ("timeout", "fine"))
        ended(broker.send(task, **first), "FAILURE")
        task_id = broker.send(task, **second)
        ended(task_id)
        if states(task_id)[0] == "rescheduled":
            break
    assert called(second) == 1
    assert states(task_id)[0] == "rescheduled"
    refused = ProviderExecutionMetric.objects.filter(reason_code="circuit_open")
    assert refused.filter(task_execution__celery_task_id=task_id).exists()
    assert set(Gate.objects.values_list("state", flat=True)) == {"closed"}


@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_a_task_that_can_still_succeed_comes_back_before_its_fallback_answers(
    broker: Broker, request_of: Make, tenant: str
) -> None:
    task_id = broker.send(tell_cushioned, **request_of("status:400", name="refused"))
    assert json.loads(ended(task_id).result) == {"word": "made up"}
    assert (states(task_id), OutboxLetter.objects.count()) == (["succeeded"], 0)
    [line] = broker.lines(task_id)
    assert (line["outcome"], line["source"], line["reason_code"]) == ("success", "fallback", "bad_request")
    who = Who(tenant, "cushioned", "anything")
    calls.force_open(who, by="tests", reason="maintenance", lasting=None)
    task_id = broker.send(tell_cushioned, **request_of("fine", name="later"))
    eventually(lambda: "rescheduled" in states(task_id), "it was sent away")
    calls.reset(who, by="tests", reason="over")
    assert json.loads(ended(task_id).result)["word"] == "fine"
    assert (states(task_id)[0], states(task_id)[-1]) == ("rescheduled", "succeeded")


def test_quota_exhaustion_fails_fast_with_canonical_quota_exhausted(
    broker: Broker, request_of: Make, tenant: str
) -> None:
    who = Who(tenant, "told", "anything")
    # However soon the next window begins.
    calls.set_quota(who, limit=0, window=60.0, by="tests")
    task_id, request = str(uuid4()), request_of("fine")
    broker.send(tell, **request, task_id=task_id)
    assert json.loads(ended(task_id, "FAILURE").result)["exc_type"] == "ProviderQuotaExceededError"
    assert (called(request), states(task_id)) == (0, ["failed"])
    assert OutboxLetter.objects.get().payload["reason_code"] == "quota_exhausted"


def test_a_task_that_is_delivered_twice_calls_once(broker: Broker, request_of: Make) -> None:
    request, task_id = request_of("slow:1"), str(uuid4())
    for _ in range(2):
        broker.send(tell_patient, **request, task_id=task_id)
    eventually(lambda: states(task_id) == ["succeeded", "succeeded"], "both have ended")
    ended(task_id)
    assert called(request) == 1


def test_a_task_whose_process_is_killed_in_mid_call_is_finished_by_another(broker: Broker, request_of: Make) -> None:
    request = request_of("slow:600", "fine")
    task_id = broker.send(tell_in_time, **request)
    eventually(lambda: called(request) == 1, "it calls")
    os.kill(int(Path(request["payload"]["log"]).read_text()), signal.SIGKILL)
    assert json.loads(ended(task_id).result)["word"] == "fine"
    assert called(request) == 2
    assert states(task_id)[-1] == "succeeded"
    assert not OutboxLetter.objects.exists()
    broker.send(tell_in_time, **request, task_id=task_id)
    eventually(lambda: states(task_id).count("succeeded") == 2, "it is delivered once more")
    assert called(request) == 2


@pytest.mark.parametrize("broker", ["rabbitmq"], indirect=True)
def test_a_task_whose_end_could_not_be_written_down_has_not_ended(broker: Broker, request_of: Make) -> None:
    request = request_of("lose:1.5", "fine")
    task_id = broker.send(tell_in_time, **request)
    assert json.loads(ended(task_id).result)["word"] == "fine"
    assert called(request) == 2
    assert not OutboxLetter.objects.exists()


@contextmanager
def without_changes() -> Iterator[None]:
    """The database is read-only for all others, as after a failover to a server that is not promoted yet."""
    alter_for_others("SET default_transaction_read_only = on")
    try:
        yield
    finally:
        alter_for_others("RESET default_transaction_read_only")


def alter_for_others(change: str) -> None:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{connection.settings_dict["NAME"]}" {change}')
        cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")


def test_a_task_waits_for_a_database_that_takes_no_changes(broker: Broker, request_of: Make) -> None:
    request, task_id = request_of("fine"), str(uuid4())
    with without_changes():
        broker.send(tell, **request, task_id=task_id)
        eventually(lambda: bool(broker.lines(task_id)), "it has found out")
    assert json.loads(ended(task_id).result)["word"] == "fine"
    assert (called(request), states(task_id)[-1]) == (1, "succeeded")


def test_a_task_that_the_broker_does_not_take_back_is_delivered_again(
    request_of: Make, rabbitmq: str, tmp_path: Path
) -> None:
    """As with a memory alarm of RabbitMQ, which takes nothing more and goes on to deliver."""
    queue, log = f"{QUEUE}.unwritable", tmp_path / "log"
    unwritable: dict[str, str] = {"CELERY_BROKER_URL": rabbitmq, "TEST_UNWRITABLE": f"amqp://127.0.0.1:{free_port()}"}
    names = ("-n", "unwritable@%h", "-Q", queue)  # beside the worker of the other tests
    with process(*WORKER, *names, "--without-gossip", "--without-mingle", log=log, **unwritable):
        task_id = Broker(rabbitmq, log).send(tell, **request_of("pause:1", "fine"), queue=queue)
        assert json.loads(ended(task_id).result)["word"] == "fine"
    assert set(states(task_id)[:-1]) == {"rescheduled"}


def test_a_provider_that_asks_for_a_pause_is_left_alone_by_all(broker: Broker, request_of: Make) -> None:
    for seconds in (6, 60):  # the second for a machine that stood still
        paused = request_of(f"pause:{seconds}", "fine", name=f"paused {seconds}")
        other = request_of("fine", name=f"other {seconds}")
        first = broker.send(tell, **paused)
        wait_for_its_first_end(first)
        assert states(first)[0] == "rescheduled", "it was asked to wait"
        second = broker.send(tell, **other)
        wait_for_its_first_end(second)
        # So is the other, if the pause has lasted until then.
        is_spared = (states(second)[0], called(other)) == ("rescheduled", 0)
        assert [ended(task_id).status for task_id in (first, second)] == ["SUCCESS"] * 2
        if is_spared:
            break
    assert is_spared
    assert (called(paused), called(other)) == (2, 1)


@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_a_task_does_not_come_back_for_ever(broker: Broker, request_of: Make, tenant: str) -> None:
    calls.force_open(Who(tenant, "told", "anything"), by="ada", reason="nobody knows for how long", lasting=None)
    task_id = broker.send(tell_hasty, **request_of("fine"))
    ended(task_id, "FAILURE")
    assert states(task_id)[0] == "rescheduled"
    assert states(task_id)[-1] == "failed"
    assert OutboxLetter.objects.get().payload["reason_code"] == "circuit_open"


def test_a_line_is_logged_for_each_execution_and_nothing_secret(broker: Broker, request_of: Make, tenant: str) -> None:
    fine, bad = request_of("fine", name="fine"), request_of("status:400", name="bad")
    sent = [broker.send(tell, **fine), broker.send(tell, **bad)]
    ended(sent[0])
    ended(sent[1], "FAILURE")
    eventually(lambda: all(broker.lines(task_id) for task_id in sent), "a line is logged of each")
    [good], [failed] = (broker.lines(task_id) for task_id in sent)
    assert set(good) - {"event", "level", "logger", "timestamp"} == LOGGED
    assert (good["outcome"], good["attempt"], good["reason_code"]) == ("success", 1, None)
    assert (failed["outcome"], failed["tenant_id"], failed["reason_code"]) == ("dead_letter", tenant, "bad_request")
    assert SECRET not in broker.log.read_text()
    assert fine["payload"]["log"] not in broker.log.read_text()


@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_a_replayed_letter_is_called_again_by_a_worker(broker: Broker, request_of: Make, tenant: str) -> None:
    log = request_of()["payload"]["log"]
    task_id = broker.send(tell_words, tenant, "status:400", "fine", log=log)
    ended(task_id, "FAILURE")
    [letter] = DeadLetter.objects.all()
    assert letter.details["request"]["task_arguments"]["args"][0] == tenant
    new = transactions.replay_letter(letter.pk, by="ada", reason="it is well again")
    assert json.loads(ended(new).result) == "it said fine"
    assert Path(log).read_text().count("\n") == 2


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["valkey", "rabbitmq"])
def test_a_task_whose_worker_is_killed_altogether_is_finished_by_another(
    kind: str, request: pytest.FixtureRequest, request_of: Make, tmp_path: Path
) -> None:
    url = os.environ["CELERY_BROKER_URL"] if kind == "valkey" else request.getfixturevalue("rabbitmq")
    asked = request_of("slow:600", "fine")
    queue = f"{QUEUE}.killed"  # of which no other worker takes
    start = (*WORKER, "-Q", queue, "--without-gossip", "--without-mingle")
    with process(*start, CELERY_BROKER_URL=url, TEST_VISIBILITY="4") as first:
        task_id = Broker(url, tmp_path).send(tell_in_time, queue=queue, **asked)
        eventually(lambda: called(asked) == 1, "it calls")
        os.killpg(first.pid, signal.SIGKILL)
        with process(*start, CELERY_BROKER_URL=url, TEST_VISIBILITY="4"):
            assert json.loads(ended(task_id).result)["word"] == "fine"
    assert called(asked) == 2
    assert not OutboxLetter.objects.exists()


@pytest.mark.soak
@pytest.mark.parametrize("broker", ["valkey"], indirect=True)
def test_a_call_that_does_not_keep_to_its_time_is_interrupted(broker: Broker, request_of: Make) -> None:
    request = request_of("slow:600")
    ended(broker.send(tell_in_time, **request), "FAILURE")
    told = OutboxLetter.objects.get().payload
    assert (told["reason_code"], told["attempts"], called(request)) == ("timeout", 1, 1)


def test_a_task_that_our_own_limits_hold_back_comes_back_in_its_turn(broker: Broker, request_of: Make) -> None:
    requests = [request_of("held", name="first"), request_of("fine", name="second")]
    first = broker.send(tell_in_turn, **requests[0])
    eventually(lambda: called(requests[0]) == 1, "the first runs")
    second = broker.send(tell_in_turn, **requests[1])
    eventually(lambda: "rescheduled" in states(second), "the second is held back")
    Path(requests[0]["payload"]["log"]).with_suffix(".go").touch()
    for task_id in (first, second):
        ended(task_id)
    assert (states(first), called(requests[1])) == (["succeeded"], 1)
    *held_back, last = states(second)
    assert (set(held_back), last) == ({"rescheduled"}, "succeeded")
    refused = ProviderExecutionMetric.objects.filter(correlation_id=second, reason_code="rate_limited")
    assert refused.count() == len(held_back) >= 1
    assert not OutboxLetter.objects.exists()
