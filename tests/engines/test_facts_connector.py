"""Pipelines on a boundary: facts are transactions, confirmed in order; and transactions become facts."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, transaction
from django.db.models import F
from django.db.models.functions import Now

from engines import Transaction, transactions
from engines.connectors import facts as facts_connector
from engines.connectors.facts import FactsConnector
from engines.core.errors import POISON, ConnectorError
from engines.core.outcome import Failure, Success
from engines.models import DeadLetter, Pipeline
from engines.worker.database_retry import DatabaseRetry
from engines.worker.pipeline import Options
from engines.worker.process import WorkerProcess
from facts import ledger, provisioning
from facts.ledger import holding, reading
from facts.models import Boundary, Consumer, Fact
from tests.commands import hear
from tests.database import answering_late, refusing
from tests.durable_transactions import consume, consumer, make_policy, wait_until_started
from tests.engines.test_broker_pipelines import ended
from tests.engines.test_database_connector import wait_for
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import LIMIT, database_url, eventually

pytestmark = pytest.mark.django_db(transaction=True)

DONE = Success("done")


@pytest.fixture(autouse=True)
def _boundary() -> None:
    import_module("tests.tasks")
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")


@pytest.fixture
def connector() -> Iterator[FactsConnector]:
    made = FactsConnector("erp")
    yield made
    made.close()
    made._thread.submit(int).result()  # it has left by then


def append(*objects: Any) -> None:
    results = ledger.append_many(draft(number, object_json=value) for number, value in enumerate(objects))
    assert [result.offset for result in results if not isinstance(result, Exception)] == list(range(len(objects)))


def cursor() -> int:
    return Consumer.objects.get().cursor


def test_a_fact_is_a_transaction_with_its_message_id() -> None:
    ledger.append(draft(1, correlation_id="order:1", causation_id="call:7"))
    connector = FactsConnector("erp")
    [transaction] = connector.fetch_transactions(10)
    assert transaction.payload == draft(1, correlation_id="order:1", causation_id="call:7")
    assert (transaction.id, transaction.correlation_id, transaction.parent_id, transaction.metadata) == (
        "order-1-released",
        "order:1",
        "call:7",
        {"offset": 0},
    )
    connector.close()


def test_a_hold_that_was_confirmed_too_late_to_be_trusted_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    append(1)
    connector, is_slow = FactsConnector("erp", term=timedelta(seconds=0.5)), threading.Event()
    connector._heart = threading.Thread()  # nobody else asks
    [transaction] = connector.fetch_transactions(1)
    keep = holding.keep

    def answer_late_once(*given: Any, term: timedelta) -> bool:
        is_kept = keep(*given, term=term)
        if not is_slow.is_set():
            is_slow.set()
            time.sleep(term.total_seconds())
        return is_kept

    monkeypatch.setattr(holding, "keep", answer_late_once)
    wait_for(lambda: not connector._is_known())
    assert connector.begin(transaction)
    assert is_slow.is_set()
    assert connector.acknowledge(transaction, DONE)
    connector.flush()
    assert cursor() == 0
    connector.close()


@pytest.fixture
def hasty(connector: FactsConnector) -> FactsConnector:
    """One whose tries end after a moment."""
    connector._retry = DatabaseRetry("read facts", limit=0.1)
    connector._heart = threading.Thread()  # nobody else asks
    return connector


# A server that answers a moment too late, of all statements this one, is nothing that a test could order.
@pytest.mark.postgresql
def test_facts_that_a_try_has_read_too_late_are_read_again(
    hasty: FactsConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(1, 2, 3)
    monkeypatch.setattr(reading, "after", answering_late(reading.after))
    batch = hasty.fetch_transactions(3)
    assert [one.metadata["offset"] for one in batch] == [0, 1, 2]
    for one in batch:
        assert hasty.begin(one)
        assert hasty.acknowledge(one, DONE)
    hasty.flush()
    assert cursor() == 2


@pytest.mark.postgresql
def test_facts_that_were_given_back_are_given_again_although_a_try_came_too_late(
    hasty: FactsConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(1, 2, 3)
    batch = hasty.fetch_transactions(2)
    hasty.release(batch)
    monkeypatch.setattr(reading, "find_consumer", answering_late(reading.find_consumer, time=2))
    assert hasty.fetch_transactions(2) == batch


@pytest.mark.postgresql
def test_a_dead_letter_that_takes_long_keeps_no_other_fact_from_being_run(hasty: FactsConnector) -> None:
    append(1, 2, 3)
    Consumer.objects.update(started={"1": POISON})
    buried = []

    def bury(transaction: Transaction, _: Failure) -> None:
        buried.append(transaction.metadata["offset"])
        time.sleep(1)  # longer than a try may take

    hasty.on_dead = bury
    batch = hasty.fetch_transactions(3)
    assert ([one.metadata["offset"] for one in batch], buried) == ([0, 2], [1])
    for one in batch:
        hasty.acknowledge(one, DONE)
    hasty.flush()
    assert (cursor(), Consumer.objects.get().started) == (2, None)


@pytest.mark.postgresql
def test_a_start_whose_note_is_confirmed_too_late_counts_once(
    hasty: FactsConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(1)
    Consumer.objects.update(started={"0": 1})  # by a process that has died since
    [transaction] = hasty.fetch_transactions(1)
    monkeypatch.setattr(holding, "note_start", answering_late(holding.note_start))
    assert hasty.begin(transaction)
    assert Consumer.objects.get().started == {"0": 2}


@pytest.mark.postgresql
def test_a_count_that_the_database_does_not_answer_is_unknown_and_stops_no_reader(hasty: FactsConnector) -> None:
    append(1)
    with ThreadPoolExecutor(1) as pool, closing(psycopg.connect(database_url())) as other:
        other.execute(f"LOCK {Consumer._meta.db_table} IN ACCESS EXCLUSIVE MODE")
        assert pool.submit(hasty.count).result(LIMIT) is None
        other.rollback()
        eventually(lambda: hasty.count() == 1, "it is counted again")
    assert len(hasty.fetch_transactions(1)) == 1


def test_a_hold_whose_answer_was_lost_is_a_new_one(connector: FactsConnector, monkeypatch: pytest.MonkeyPatch) -> None:
    append(1, 2)
    before = connector.fetch_transactions(2)
    take_hold, is_lost = holding.hold, threading.Event()

    def hold_and_lose_connection(*given: Any, term: timedelta) -> bool:
        is_held = take_hold(*given, term=term)
        if not is_lost.is_set():
            is_lost.set()
            msg = "the connection was lost before the server's answer came"
            raise OperationalError(msg)
        return is_held

    row = Consumer.objects.get()
    Consumer.objects.update(held_until=Now() - timedelta(seconds=1))
    assert holding.hold(row, "another")  # which may have begun what was read
    Consumer.objects.update(held_until=Now() - timedelta(seconds=1))
    monkeypatch.setattr(holding, "hold", hold_and_lose_connection)
    connector._held_at = None  # as after a third of the term
    after = connector.fetch_transactions(2)
    assert is_lost.is_set()
    assert [connector.begin(one) for one in (*before, *after)] == [False, False, True, True]
    assert Consumer.objects.get().started == {"0": 1, "1": 1}


def test_a_fact_is_confirmed_once_all_before_it_have_ended(connector: FactsConnector) -> None:
    append(1, 2, 3, 4)
    batch = connector.fetch_transactions(3)
    for ended_now, expected in ((1, -1), (2, -1), (0, 2)):
        connector.acknowledge(batch[ended_now], DONE)
        connector.flush()
        assert cursor() == expected
    [last] = connector.fetch_transactions(3)
    connector.acknowledge(last, DONE)
    connector.flush()
    assert (cursor(), connector.fetch_transactions(3), connector.count()) == (3, [], 0)


def test_what_is_confirmed_is_not_confirmed_again(connector: FactsConnector) -> None:
    append(1, 2)
    connector.acknowledge(connector.fetch_transactions(2)[0], DONE)
    connector.flush()
    assert cursor() == 0
    Consumer.objects.update(cursor=-1)  # whoever writes now is seen
    connector.flush()
    assert cursor() == -1


def test_what_is_given_back_is_given_again(connector: FactsConnector) -> None:
    append(1, 2, 3)
    batch = connector.fetch_transactions(2)
    connector.release(batch)
    assert connector.given_back == 2
    assert connector.fetch_transactions(3) == batch
    assert [one.metadata["offset"] for one in connector.fetch_transactions(3)] == [2]


def test_one_process_reads_as_a_consumer_and_another_takes_over_from_its_cursor(connector: FactsConnector) -> None:
    append(1, 2, 3)
    batch = connector.fetch_transactions(3)
    connector.acknowledge(batch[0], DONE)
    connector.flush()
    other = FactsConnector("erp")
    assert other.fetch_transactions(3) == []
    Consumer.objects.update(held_until=None)  # as if the first had died
    assert [one.metadata["offset"] for one in other.fetch_transactions(3)] == [1, 2]
    other.close()


def test_what_another_process_read_between_a_look_at_the_consumer_and_the_hold_is_not_begun(
    connector: FactsConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(1, 2, 3)
    batch = connector.fetch_transactions(3)
    look = reading.find_consumer

    def look_and_freeze(name: str) -> Consumer:
        """Read the row; until it is used, the term is over, and another process has read everything and left."""
        row = look(name)
        if row.held_by == connector._holder:
            Consumer.objects.update(held_until=Now() - timedelta(seconds=1))
            assert holding.hold(row, "another")
            ledger.confirm(name, 2)
            holding.let_go(row, "another")
        return row

    monkeypatch.setattr(reading, "find_consumer", look_and_freeze)
    monkeypatch.setattr(facts_connector, "age", lambda _: holding.TERM.total_seconds() / 2)
    assert not connector.is_ours(batch[0])
    assert [connector.begin(one) for one in batch] == [False, False, False]
    assert connector.fetch_transactions(3) == []


def fail_over(*, kept: int, confirmed: int, then: Sequence[dict[str, Any]]) -> None:
    """Leave what a replica has that lacked the newest writes when it was promoted, and what was appended since."""
    with transaction.atomic():
        Boundary.objects.update(first_offset=F("next_offset"))  # else triggers keep them
        Fact.objects.filter(offset__gte=kept).delete()
        Boundary.objects.update(next_offset=kept, first_offset=0)
        Consumer.objects.update(cursor=confirmed)
        ledger.append_many(then)


def new_facts(count: int) -> tuple[list[dict[str, Any]], list[str]]:
    drafts = [draft(f"new-{number}") for number in range(count)]
    return drafts, [one["envelope"]["message_id"] for one in drafts]


def work_off(connector: FactsConnector) -> list[tuple[int, str]]:
    """End all that can be fetched; the offset and id of each."""
    done = list[tuple[int, str]]()
    while batch := connector.fetch_transactions(10):
        done += [(one.metadata["offset"], one.id) for one in batch]
        assert all(connector.acknowledge(one, DONE) for one in batch)
        connector.flush()
    return done


# Fewer than were lost, as many, and more.
@pytest.mark.parametrize("count", [0, 2, 4, 6])
def test_facts_at_the_offsets_of_lost_ones_are_read_although_those_were_confirmed(
    connector: FactsConnector, count: int
) -> None:
    append(*range(10))
    assert len(work_off(connector)) == 10
    drafts, ids = new_facts(count)
    fail_over(kept=6, confirmed=4, then=drafts)
    assert work_off(connector) == list(enumerate(["order-5-released", *ids], start=5))
    assert cursor() == 5 + count


@pytest.mark.parametrize("count", [0, 2, 4, 6])
def test_facts_at_the_offsets_of_lost_ones_are_not_confirmed_by_the_end_of_those(
    connector: FactsConnector, count: int
) -> None:
    append(*range(10))
    batch = connector.fetch_transactions(10)
    for one in batch[:5]:
        connector.acknowledge(one, DONE)
    connector.flush()
    drafts, ids = new_facts(count)
    fail_over(kept=6, confirmed=4, then=drafts)
    for one in batch[5:]:
        connector.acknowledge(one, DONE)
    connector.flush()
    assert cursor() == 4
    assert not any(map(connector.begin, batch))
    assert work_off(connector) == list(enumerate(["order-5-released", *ids], start=5))
    assert cursor() == 5 + count


@pytest.mark.postgresql
def test_facts_at_the_offsets_of_lost_ones_are_not_confirmed_by_a_try_that_is_repeated(
    hasty: FactsConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(1, 2)
    batch = hasty.fetch_transactions(2)
    drafts, ids = new_facts(1)
    fail_over(kept=1, confirmed=-1, then=drafts)
    monkeypatch.setattr(reading, "identity", answering_late(reading.identity))
    for one in batch:
        hasty.acknowledge(one, DONE)
    hasty.flush()
    assert cursor() == -1
    assert work_off(hasty) == [(0, "order-0-released"), (1, *ids)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_drain_waits_for_the_term_of_a_process_that_has_died(connector: FactsConnector, *, is_async: bool) -> None:
    append(1, 2)
    Consumer.objects.update(held_by="a process that has died", held_until=Now() + timedelta(seconds=2))
    connector.drain()
    fetch = asyncio.run(connector.fetch_transactions_async(3)) if is_async else connector.fetch_transactions(3)
    assert [one.metadata["offset"] for one in fetch] == [0, 1]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_drain_does_not_wait_for_a_process_that_lives_or_when_it_is_stopped(*, is_stopped: bool) -> None:
    append(1, 2)
    connector = FactsConnector("erp", term=timedelta(minutes=5) if is_stopped else timedelta(seconds=1))
    Consumer.objects.update(held_by="a process that lives", held_until=Now() + timedelta(minutes=9))
    connector.drain()
    if is_stopped:
        threading.Timer(0.2, connector.interrupt).start()
    began = time.monotonic()
    assert connector.fetch_transactions(3) == []
    assert time.monotonic() - began < LIMIT, "not when its term is over"
    connector.close()


def test_a_consumer_that_nobody_has_made_is_told_by_its_name() -> None:
    connector = FactsConnector("nobody")
    with pytest.raises(ConnectorError, match="no consumer named 'nobody'"):
        connector.fetch_transactions(1)
    connector.close()


def test_asyncio_reads_and_appends_the_same_way() -> None:
    async def work() -> None:
        connector = FactsConnector("erp")
        sent = [Transaction("a", draft(1)), Transaction("b", draft(2))]
        assert await connector.dispatch_transactions_async(sent) == 2
        assert await connector.count_async() == 2
        batch = await connector.fetch_transactions_async(5)
        await connector.release_async(batch[1:])
        await connector.acknowledge_async(batch[0], DONE)
        [again] = await connector.fetch_transactions_async(5)
        await connector.acknowledge_async(again, DONE)
        await connector.flush_async()
        connector.close()

    asyncio.run(work())
    assert cursor() == 1


@pytest.mark.parametrize("task", ["tests.act_on_fact", "tests.act_on_fact_async"])
def test_a_pipeline_runs_facts_and_a_failure_has_its_dead_letter(task: str) -> None:
    pipeline = make_pipeline("erp", task, connector="facts", policy=make_policy())
    append({"n": 1}, {"fail": "broken"}, {"n": 2})
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: ended(pipeline) == (2, 1))
        wait_for(lambda: cursor() == 2)
        letter = DeadLetter.objects.get()
        assert (letter.uid, letter.error_type) == ("order-1-released", "ValueError")
        assert letter.payload == draft(1, object_json={"fail": "broken"})
        new = transactions.replay_letter(letter.pk, by="ada", reason="repaired", payload=draft(1, object_json={"n": 3}))
        wait_for(lambda: transactions.find(new).word == "succeeded")
        worker.stop()
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []


def test_facts_of_a_consumer_that_is_killed_are_run_by_the_next(tmp_path: Any) -> None:
    marks = tmp_path / "marks"
    make_pipeline("erp", "tests.act_on_fact", connector="facts", policy=make_policy())
    append(*({"mark": str(marks), "sleep": 0.05, "id": number} for number in range(40)))
    with consumer("erp") as first:
        wait_until_started(first)
        wait_for(lambda: cursor() >= 3)
        first.kill()
        first.wait(LIMIT)
    confirmed = cursor()
    # It holds the consumer until its term is over; most of that is taken to be over.
    Consumer.objects.update(held_until=Now() + timedelta(seconds=3))
    assert consume("erp", "--drain").code == 0
    seen = [int(line.split()[0]) for line in marks.read_text().splitlines()]
    assert set(seen) == set(range(40))
    assert cursor() == 39
    assert all(seen.count(number) == 1 for number in range(confirmed + 1))


@pytest.mark.parametrize("task", ["tests.act_on_fact", "tests.act_on_fact_async"])
def test_a_consumer_runs_the_facts_that_a_promoted_replica_got_in_place_of_lost_ones(task: str, tmp_path: Any) -> None:
    marks = tmp_path / "marks"
    make_pipeline("erp", task, connector="facts", policy=make_policy())
    append(*({"mark": str(marks), "id": number} for number in range(10)))
    with consumer("erp") as process:
        wait_until_started(process)
        wait_for(lambda: cursor() == 9)
        drafts = [draft(f"new-{number}", object_json={"mark": str(marks), "id": 10 + number}) for number in range(4)]
        fail_over(kept=6, confirmed=4, then=drafts)
        wait_for(lambda: cursor() == 9)
        hear(process, "consumer_set_back")
        process.terminate()
        assert process.wait(LIMIT) == 0
    seen = [int(line.split()[0]) for line in marks.read_text().splitlines()]
    assert sorted(seen) == sorted([*range(14), 5])


@pytest.mark.parametrize("task", ["tests.act_on_fact", "tests.act_on_fact_async"])
def test_a_reader_whose_time_is_up_ends_although_the_database_takes_no_hold(task: str) -> None:
    make_pipeline("erp", task, connector="facts", policy=make_policy())
    append({"n": 1})
    with refusing(Consumer._meta.db_table, "UPDATE"):
        run = consume("erp", "--timeout", "2")
    assert run.code == 0, run.errors
    assert cursor() == -1


def test_a_producer_appends_facts_and_a_refusal_has_its_dead_letter() -> None:
    policy = make_policy("send", {"steps": {"produce": {"retry": {"max_attempts": 1}}}}, kind="producer")
    pipeline = make_pipeline("announce", "tests.announce", direction="outbound", connector="facts", policy=policy)
    drafts = [draft(1), draft(1), draft(2, to_zone="Mars")]
    transactions.submit_many("announce", [transactions.Draft(payload) for payload in drafts])
    assert consume("announce", "--drain", command="produce").code == 0
    assert Fact.objects.count() == 1
    assert "there is no zone named 'Mars'" in DeadLetter.objects.get().message
    assert Pipeline.objects.get() == pipeline
