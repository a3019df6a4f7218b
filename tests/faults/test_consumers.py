"""What consumers survive, with real processes: kills, stops, frozen workers, poison, orders to end."""

import os
import random
import signal
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.utils import timezone

from engines import transactions
from engines.models import Attempt, DeadLetter, TransactionRecord, Worker
from engines.reads import explain
from tests.commands import next_event
from tests.database import refusing
from tests.durable_transactions import consume, consumer, count, make_policy, states, submit, wait_until_started
from tests.factories import make_pipeline
from tests.faults.test_leases import freeze
from tests.processes import LIMIT, eventually, is_alive, run_module

pytestmark = pytest.mark.django_db(transaction=True)

SUCCEEDED, FAILED = 2, 3
# Where a test waits until the lease of a worker that is gone is over.
SOON_OVER = {"ERGON_LEASE_SECONDS": "2"}
COMMANDS = {"inbound": "consume", "outbound": "produce"}
# A start that takes long, and where an interruption does not get through: as happens inside a destructor.
SLOW_TO_COME = """
import contextlib, time
with open({mark!r}, "a") as file:
    file.write("begun\\n")
until = time.monotonic() + 3
while time.monotonic() < until:
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(0.1)
"""

# More than a pipe holds, before a process can have told anything; none of it is an event, and some of it is no text.
PRINTING = """
import os
print(5, '{"event": "started"}', "x" * 100_000, sep="\\n", flush=True)
os.write(1, b"\\xff no text at all\\n")
"""


def runs(mark: Path) -> Counter[str]:
    """How often each transaction was begun, as the handlers themselves wrote it down."""
    return Counter(line.split()[0] for line in mark.read_text().splitlines()) if mark.exists() else Counter()


def submit_marked(name: str, how_many: int, mark: Path, **payload: Any) -> None:
    drafts = [
        transactions.Draft({"id": f"t{number}", "mark": str(mark), **payload}, id=f"t{number}")
        for number in range(how_many)
    ]
    transactions.submit_many(name, drafts)


def kill_at_random(
    how_many: int, seconds: float, mark: Path, *, every: tuple[float, float], policy: Any = None, **payload: Any
) -> None:
    """Consumers are killed for a while, whatever they do, and replaced; then two finish the work."""
    make_pipeline(policy=make_policy(body=policy))
    submit_marked("orders", how_many, mark, sleep=seconds * 4 / how_many, **payload)
    until, chance = time.monotonic() + seconds, random.Random(17)  # noqa: S311 (not a secret)
    while time.monotonic() < until:
        with consumer("orders", **SOON_OVER) as first, consumer("orders", **SOON_OVER) as second:
            wait_until_started(first)
            wait_until_started(second)
            time.sleep(chance.uniform(*every))
            chance.choice([first, second]).kill()
            time.sleep(chance.uniform(*every))
    with consumer("orders", **SOON_OVER) as first, consumer("orders", **SOON_OVER):
        wait_until_started(first)
        eventually(
            lambda: count(SUCCEEDED) + count(FAILED) == how_many, "everything has ended", within=60 + 5 * seconds
        )


def check_that_nothing_was_lost(how_many: int, mark: Path) -> None:
    begun = runs(mark)
    records = {record.uid: record for record in TransactionRecord.objects.all()}
    assert len(records) == how_many
    assert set(begun) == set(records)
    for uid, record in records.items():
        # Only what a dead worker held runs again, and each time under a new lease.
        assert begun[uid] <= record.attempts
        assert record.attempts == record.rescues + 1 or (record.state == FAILED and record.rescues == 3)
    assert DeadLetter.objects.count() == count(FAILED)
    assert set(DeadLetter.objects.values_list("error_type", flat=True)) <= {"PoisonTransaction"}
    assert count(FAILED) <= how_many // 100


def test_consumers_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    kill_at_random(400, 4, tmp_path / "mark", every=(0.3, 0.8))
    check_that_nothing_was_lost(400, tmp_path / "mark")


@pytest.mark.soak
def test_consumers_killed_at_random_for_a_minute_lose_nothing(tmp_path: Path) -> None:
    kill_at_random(10_000, 60, tmp_path / "mark", every=(0.3, 2.0))
    check_that_nothing_was_lost(10_000, tmp_path / "mark")


PARKING = {
    "loop": {"concurrency": {"value": 4}, "batch": {"size": 20}},
    "steps": {"process": {"retry": {"max_attempts": 3, "backoff": 0.5, "backoff_multiplier": 1}}},
    "park_after": 0,
}


def check_that_every_attempt_was_made_in_turn(how_many: int) -> None:
    """One whose worker was killed before it was parked may be there twice."""
    made = Attempt.objects.filter(step=1).order_by("transaction_id", "delivery", "number")
    tried: dict[int, list[tuple[int, int]]] = {}
    for record_id, number, outcome in made.values_list("transaction_id", "number", "outcome"):
        tried.setdefault(record_id, []).append((number, outcome))
    poison = set(TransactionRecord.objects.filter(state=FAILED).values_list("pk", flat=True))
    # Held three times each, more of them are among what was held at four kills.
    assert len(poison) <= how_many // 10
    assert len(tried | dict.fromkeys(poison)) == how_many
    for record_id, attempts in tried.items():
        assert attempts == sorted(attempts)
        assert record_id in poison or (set(attempts) == {(1, 1), (2, 1), (3, 0)} and attempts[-2:] == [(2, 1), (3, 0)])
    ended = TransactionRecord.objects.filter(state=SUCCEEDED)
    assert all(one.attempts == one.rescues + 1 for one in ended)


def test_consumers_killed_at_random_make_every_attempt_of_what_is_parked_in_turn(tmp_path: Path) -> None:
    kill_at_random(200, 4, tmp_path / "mark", every=(0.3, 0.8), policy=PARKING, at=3)
    check_that_every_attempt_was_made_in_turn(200)


@pytest.mark.soak
def test_consumers_killed_for_a_minute_make_every_attempt_of_what_is_parked_in_turn(tmp_path: Path) -> None:
    kill_at_random(5_000, 60, tmp_path / "mark", every=(0.3, 2.0), policy=PARKING, at=3)
    check_that_every_attempt_was_made_in_turn(5_000)


def test_sixty_four_claimers_on_one_queue_never_get_the_same() -> None:
    pipeline = make_pipeline()
    ids = submit(pipeline, 1500)
    done = run_module("tests.faults.claimers", "orders", "64", "7")
    assert (done.returncode, done.stderr) == (0, "")
    taken = done.stdout.split()
    assert len(taken) == len(set(taken)) == 1500
    assert set(taken) == set(ids)


def test_a_worker_that_freezes_beyond_its_lease_changes_nothing_when_it_wakes(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    submit_marked("orders", 1, tmp_path / "mark", until=str(tmp_path / "gate"))
    with consumer("orders", ERGON_LEASE_SECONDS="120") as frozen:
        worker = wait_until_started(frozen)["worker"]
        eventually(lambda: runs(tmp_path / "mark") == {"t0": 1}, "it runs")
        freeze(frozen)
        # Its lease is long, so that it does not notice by itself; now it is over.
        TransactionRecord.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        (tmp_path / "gate").touch()
        try:
            with consumer("orders", **SOON_OVER):
                eventually(lambda: states("t0") == ["succeeded"], "another worker has done it")
            settled = TransactionRecord.objects.get()
        finally:
            frozen.send_signal(signal.SIGCONT)
        frozen.send_signal(signal.SIGTERM)
        output, errors = frozen.communicate(timeout=LIMIT)
    # Its outcome came too late, or it knew before there was one.
    assert '"stale": 1' in output or "leases_lost" in errors
    record = TransactionRecord.objects.get()
    assert (record.finished_at, record.fencing_token, record.rescues) == (settled.finished_at, 2, 1)
    assert Attempt.objects.exclude(worker=worker).count() == Attempt.objects.count() == 1


def test_a_transaction_that_kills_its_worker_every_time_is_dead_lettered_after_three_rescues() -> None:
    pipeline = make_pipeline(policy=make_policy())
    (poison,) = submit(pipeline, kill=True)
    with consumer("orders", "--processes", "2") as parent:
        eventually(lambda: states(poison) == ["failed"], "the poison is out")
        good = submit(pipeline, 5)
        eventually(lambda: set(states(*good)) == {"succeeded"}, "the rest goes on")
        eventually(lambda: Worker.objects.filter(state="dead").count() == 3, "the dead are noticed")
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=LIMIT)
        assert parent.returncode == 0
    record, letter = transactions.find(poison), DeadLetter.objects.get()
    assert (record.rescues, letter.error_type) == (3, "PoisonTransaction")
    assert "PoisonTransaction" in explain.explain(poison)["sentence"]


def test_an_order_to_end_in_mid_batch_burns_nothing(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    submit_marked("orders", 30, tmp_path / "mark", sleep=0.4)
    with consumer("orders", "--grace", "60", ERGON_LEASE_SECONDS="30") as process:
        wait_until_started(process)
        eventually(lambda: len(runs(tmp_path / "mark")) >= 4, "the slots are full")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 3
    begun = runs(tmp_path / "mark")
    assert set(begun.values()) == {1}
    assert count(SUCCEEDED) == len(begun)
    waiting = TransactionRecord.objects.filter(state=0)
    assert waiting.count() == 30 - len(begun)
    assert set(waiting.values_list("attempts", "rescues", "lease_owner")) == {(0, 0, None)}


def test_what_does_not_end_within_the_grace_is_given_back() -> None:
    pipeline = make_pipeline(policy=make_policy())
    (uid,) = submit(pipeline, sleep=3600)
    with consumer("orders", "--grace", "0.5") as process:
        wait_until_started(process)
        eventually(lambda: states(uid) == ["running"], "it runs")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 3
    assert (transactions.find(uid).word, transactions.find(uid).attempts) == ("pending", 0)


@pytest.mark.once
def test_a_second_order_ends_the_process_at_once(tmp_path: Path) -> None:
    pipeline = make_pipeline(policy=make_policy())
    submit(pipeline, mark=str(tmp_path / "mark"), sleep=3600)
    with consumer("orders", "--grace", "3600") as process:
        wait_until_started(process)
        eventually((tmp_path / "mark").exists, "its handler has begun")
        process.send_signal(signal.SIGTERM)
        eventually(lambda: Worker.objects.get().state == "stopping", "it has heard")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 128 + signal.SIGTERM


def hanging(direction: str = "inbound", **retry: Any) -> str:
    """A policy with two slots, and little time for each attempt."""
    kind, step = ("consumer", "process") if direction == "inbound" else ("producer", "produce")
    body = {
        "loop": {"concurrency": {"value": 2}, "batch": {"size": 2}},
        "steps": {step: {"retry": {"timeout": 0.2, **retry}}},
        "park_after": None,
    }
    return make_policy("hanging", body, kind)


@pytest.mark.once
@pytest.mark.parametrize(
    ("task", "direction", "payload"),
    [
        ("tests.act", "inbound", {"until": "/there/is/no/such/place"}),
        ("tests.hang_async", "inbound", {"hang": "task"}),
        ("tests.send", "outbound", {"until": "/there/is/no/such/place"}),
        ("tests.hang_sending_async", "outbound", {"hang": "task"}),
    ],
)
def test_a_worker_full_of_handlers_that_never_return_ends_with_code_4(
    task: str, direction: str, payload: dict[str, str]
) -> None:
    pipeline = make_pipeline(task=task, direction=direction, policy=hanging(direction))
    ids = submit(pipeline, 2, **payload)
    run = consume("orders", command=COMMANDS[direction], ERGON_ABANDONED_GRACE="0.5")
    assert run.code == 4
    assert "2 abandoned attempts" in run.errors
    assert set(states(*ids)) == {"failed"}
    assert set(DeadLetter.objects.values_list("category", flat=True)) == {"TIMEOUT"}


def test_one_that_hangs_at_every_attempt_is_poison_and_not_given_back_for_ever() -> None:
    pipeline = make_pipeline(policy=hanging(max_attempts=3, backoff=30))
    hung = submit(pipeline, 2, until="/there/is/no/such/place")
    good = submit(pipeline, 4)
    for _ in range(3):
        run = consume("orders", ERGON_ABANDONED_GRACE="0.5", ERGON_LEASE_SECONDS="30")
        assert run.code == 4
        eventually(lambda: not Worker.objects.filter(in_flight__gt=0).exists(), "its row is settled")
        # Its leases are long, so that none is lost for being slow; now they are over.
        leased = TransactionRecord.objects.filter(lease_expires_at__isnull=False)
        leased.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        transactions.rescue()
    assert set(states(*hung)) == {"failed"}
    hanging(timeout=20)  # the others have time enough on a busy machine, too
    assert consume("orders", "--drain").code == 0
    assert set(states(*good)) == {"succeeded"}


@pytest.mark.once
@pytest.mark.parametrize("hang", ["task", "thread", "loop"])
def test_an_async_worker_ends_after_its_grace_whatever_its_handlers_do(hang: str, tmp_path: Path) -> None:
    pipeline = make_pipeline(task="tests.hang_async", policy=make_policy())
    (uid,) = submit(pipeline, hang=hang, mark=str(tmp_path / "mark"))
    with consumer("orders", "--grace", "0.5") as process:
        wait_until_started(process)
        eventually((tmp_path / "mark").exists, "its handler has begun")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 3
    # One that blocks the event loop keeps even that from being said: its lease lapses.
    assert states(uid) == ["running" if hang == "loop" else "pending"]


@pytest.mark.once
def test_a_thread_that_an_async_handler_left_behind_does_not_keep_the_process() -> None:
    pipeline = make_pipeline(task="tests.hang_async", policy=hanging())
    (uid,) = submit(pipeline, hang="thread")
    assert consume("orders", "--limit", "1").code == 0
    assert states(uid) == ["failed"]


def test_a_full_pipeline_takes_the_others_of_its_process_with_it_at_once() -> None:
    full = make_pipeline("full", policy=hanging())
    other = make_pipeline("other", policy=make_policy())
    submit(full, 2, until="/there/is/no/such/place")
    (uid,) = submit(other, sleep=3600)
    run = consume("full", "other", "--grace", "3600", ERGON_ABANDONED_GRACE="1")
    assert run.code == 4
    assert states(uid) == ["pending"]


def test_two_processes_share_the_work_and_end_when_nothing_is_due() -> None:
    pipeline = make_pipeline(policy=make_policy())
    ids = submit(pipeline, 200, sleep=0.01)
    run = consume("orders", "--drain", "--processes", "2")
    assert run.code == 0
    assert set(states(*ids)) == {"succeeded"}
    assert len({event["process"] for event in run.events}) == 2
    assert {worker.state for worker in Worker.objects.all()} == {"stopped"}


@pytest.mark.once
def test_what_is_printed_gets_between_no_events_and_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRINTING)
    pipeline = make_pipeline(policy=make_policy())
    ids = submit(pipeline, 200, print="printed by a task " * 60)
    ids += submit(pipeline, 20, print=5)
    run = consume("orders", "--drain", "--processes", "2", PYTHONPATH=str(tmp_path))
    assert run.code == 0
    assert set(states(*ids)) == {"succeeded"}
    assert {event["event"] for event in run.events} >= {"started", "stopped"}
    assert sum(event["succeeded"] for event in run.events if event["event"] == "stopped") == 220
    assert run.errors.count("printed by a task") == 200 * 60
    assert "no text at all" in run.errors


def test_a_parent_can_be_stopped_while_the_database_takes_nothing() -> None:
    make_pipeline(policy=make_policy())
    with consumer("orders", "--processes", "2") as parent:
        eventually(lambda: Worker.objects.filter(state="running").count() == 2, "both run")
        with refusing("engines_worker", "UPDATE"):
            psutil.Process(parent.pid).children()[0].kill()
            eventually(lambda: Worker.objects.count() == 3, "the dead one is replaced all the same")
            parent.send_signal(signal.SIGTERM)
            parent.communicate(timeout=LIMIT)


@pytest.mark.once
def test_a_second_order_ends_the_parent_of_several_processes_too(tmp_path: Path) -> None:
    pipeline = make_pipeline(policy=make_policy())
    (uid,) = submit(pipeline, mark=str(tmp_path / "mark"), sleep=3600)
    with consumer("orders", "--processes", "2", "--grace", "3600") as parent:
        eventually((tmp_path / "mark").exists, "its handler has begun")
        parent.send_signal(signal.SIGTERM)
        eventually(lambda: Worker.objects.filter(state="stopping").exists(), "it has heard")
        time.sleep(1.5)  # what comes within a second is the same order
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=LIMIT)
        assert parent.returncode == 128 + signal.SIGTERM
    eventually(lambda: states(uid) == ["pending"], "what it held was given back")


def interrupt_all(parent: int) -> None:
    """Tell a whole group of processes: each by itself, and the children by way of their parent, too."""
    for process in [*psutil.Process(parent).children(), psutil.Process(parent)]:
        process.send_signal(signal.SIGINT)


@pytest.mark.once
def test_an_order_to_a_whole_group_of_processes_is_one_order(tmp_path: Path) -> None:
    pipeline, mark = make_pipeline(policy=make_policy()), tmp_path / "mark"
    ids = submit(pipeline, 2, mark=str(mark), sleep=2.0)
    with consumer("orders", "--processes", "2", ERGON_LEASE_SECONDS="30") as parent:
        eventually(lambda: mark.exists() and mark.read_text().count("\n") == 2, "both have begun")
        interrupt_all(parent.pid)
        parent.communicate(timeout=LIMIT)
        assert parent.returncode == 0
    assert set(states(*ids)) == {"succeeded"}
    assert set(TransactionRecord.objects.values_list("rescues", flat=True)) == {0}


@pytest.mark.once
def test_an_order_that_comes_while_processes_start_is_not_lost(tmp_path: Path) -> None:
    make_pipeline(policy=make_policy())
    mark = tmp_path / "starting"
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_COME.format(mark=str(mark)))
    with consumer("orders", "--processes", "2", PYTHONPATH=str(tmp_path)) as parent:
        eventually(lambda: mark.exists() and mark.read_text().count("\n") >= 2, "the children have begun")
        interrupt_all(parent.pid)
        _, errors = parent.communicate(timeout=LIMIT)
        assert (parent.returncode, "process_died" in errors) == (0, False), errors
    assert set(Worker.objects.values_list("state", flat=True)) <= {"stopped"}


@pytest.mark.once
@pytest.mark.parametrize("processes", [1, 2])
def test_an_order_to_end_that_comes_when_all_is_done_changes_nothing(processes: int) -> None:
    """It comes while the processes, their work done and told, are about to be gone."""
    ids = submit(make_pipeline(policy=make_policy()), 20)
    slow_to_go = {"ERGON_TASKS": "tests.tasks,tests.slow_exit"}
    with consumer("orders", "--drain", "--processes", str(processes), **slow_to_go) as process:
        for _ in range(processes):
            assert next_event(process, "stopped")["code"] == 0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, "process_died" in errors) == (0, False), errors
    assert states(*ids) == ["succeeded"] * 20
    assert list(Worker.objects.values_list("state", flat=True)) == ["stopped"] * processes


@pytest.mark.once
def test_the_death_of_the_parent_of_several_processes_leaves_none_behind() -> None:
    make_pipeline(policy=make_policy())
    with consumer("orders", "--processes", "2") as parent:
        eventually(lambda: Worker.objects.count() == 2, "both run")
        children = psutil.Process(parent.pid).children()
        os.kill(parent.pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, children)), "all gone")
