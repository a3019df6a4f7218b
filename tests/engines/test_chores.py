"""What runs by itself: schedules, bulk operations, leaders, counts put together."""

import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from engines import dead_letters, schedules, transactions, workers
from engines.core.states import GroupState
from engines.dead_letters import DeadLetterDraft, bulk
from engines.dead_letters.bulk import BulkError, Terms
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, Schedule, Throughput, TransactionRecord
from engines.reads import status
from engines.schedules import Plan, ScheduleError
from tests.durable_transactions import claim, failed, settle, states, submit
from tests.factories import ThroughputFactory, make_pipeline

pytestmark = pytest.mark.django_db


def make_schedule(**plan: Any) -> Schedule:
    make_pipeline()
    fields = {"cron": "*/10 * * * *", "payload": {"report": "daily"}, **plan}
    return schedules.create("report", Plan(pipeline="orders", **fields), by="ada")


def set_next_run(minutes_ago: float) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    Schedule.objects.update(next_run_at=now - timedelta(minutes=minutes_ago))


def test_a_schedule_submits_its_payload_when_it_is_due_and_not_again() -> None:
    make_schedule()
    assert schedules.fire() == 0
    set_next_run(minutes_ago=0.5)
    assert (schedules.fire(), schedules.fire()) == (1, 0)
    record = TransactionRecord.objects.get()
    assert (record.payload, record.source) == ({"report": "daily"}, "schedule:report")
    assert Schedule.objects.get().next_run_at > timezone.now()


@pytest.mark.parametrize("chore", [schedules.fire, bulk.advance, transactions.rescue])
def test_a_chore_of_every_second_takes_one_statement_if_there_is_nothing_to_do(
    chore: Any, django_assert_num_queries: Any
) -> None:
    make_schedule()
    with django_assert_num_queries(1):
        chore()


@pytest.mark.parametrize(("rule", "runs"), [("one", 1), ("all", 4), ("none", 0)])
def test_missed_runs_are_caught_up_with_as_the_schedule_says(rule: str, runs: int) -> None:
    schedule = make_schedule(catch_up=rule, cron="0 * * * *")
    due = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    Schedule.objects.filter(pk=schedule.pk).update(next_run_at=due)
    if timezone.now().minute == 0:  # the run of this very hour is punctual under every rule
        runs = max(runs, 1)
    assert schedules.fire() == runs
    assert Schedule.objects.get().next_run_at > timezone.now()


def test_a_paused_schedule_does_not_fire_and_goes_on_from_now() -> None:
    make_schedule()
    schedules.pause("report", by="ada", reason="holiday")
    set_next_run(minutes_ago=60)
    assert schedules.fire() == 0
    schedules.resume("report", by="ada", reason="back")
    assert schedules.fire() == 0
    assert Schedule.objects.get().next_run_at > timezone.now()


def test_a_schedule_keeps_to_the_clock_on_the_wall_of_its_zone() -> None:
    times = schedules.runs_after("30 8 * * *", "Europe/Berlin", datetime(2026, 3, 27, 12, tzinfo=UTC))
    assert [run.astimezone(UTC).hour for run in islice(times, 3)] == [7, 6, 6]  # summer time begins on the 29th


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"cron": "every day"}, "is not a cron expression"),
        ({"time_zone": "Mars/Olympus"}, "no time zone named"),
        ({"catch_up": "some"}, "catch_up must be one, all or none"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(plan: dict[str, str], problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        make_schedule(**plan)


def test_a_payload_that_is_no_json_is_refused_before_the_schedule_is_made() -> None:
    with pytest.raises(ScheduleError, match="the payload is not JSON"):
        make_schedule(payload={"a": {1}})


def fail_some(how_many: int) -> DeadLetterGroup:
    pipeline = make_pipeline()
    submit(pipeline, how_many)
    settle(claim(pipeline, how_many), failed("the customer is unknown"))
    return DeadLetterGroup.objects.get()


def begin(group: DeadLetterGroup, verb: str = "replay", **terms: Any) -> BulkOperation:
    return bulk.begin(verb, group.pk, Terms(**{"rate": 100.0, **terms}), by="ada", reason="repaired")


def advance_until(holds: Any) -> None:
    for _ in range(200):
        if holds():
            return
        bulk.advance()
        time.sleep(0.02)
    pytest.fail("the operation did not get there")


def test_a_group_is_replayed_canary_first_and_then_at_its_pace() -> None:
    group = fail_some(6)
    operation = begin(group, canary=2)
    assert operation.expected == 6
    assert bulk.advance() == 2
    assert bulk.advance() == 0  # the canary has not come back yet
    pipeline = TransactionRecord.objects.select_related("pipeline").first()
    assert pipeline is not None
    settle(claim(pipeline.pipeline))
    advance_until(lambda: BulkOperation.objects.get().state == "done")
    assert BulkOperation.objects.get().done == 6
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"replayed"}
    assert DeadLetterGroup.objects.get().state == GroupState.RESOLVED


def test_a_replay_that_fails_again_stops_the_operation() -> None:
    group = fail_some(5)
    begin(group, canary=1)
    bulk.advance()
    record = TransactionRecord.objects.select_related("pipeline").filter(state=0).get()
    settle(claim(record.pipeline), failed("the customer is unknown"))
    advance_until(lambda: BulkOperation.objects.get().state == "stopped")
    operation = BulkOperation.objects.get()
    assert operation.note == "1 of its replays failed again"
    assert DeadLetter.objects.filter(state="open").count() == 5


def fail_some_elsewhere(how_many: int) -> DeadLetterGroup:
    """Of a pipeline whose transactions come from a broker: no record keeps them."""
    make_pipeline()
    drafts = [
        DeadLetterDraft(
            source="orders",
            uid=f"order-{number}",
            step="process",
            category="SYSTEM",
            error_type="ValueError",
            message="the customer is unknown",
            payload={"n": number},
            details={},
        )
        for number in range(how_many)
    ]
    return dead_letters.record(drafts)[0].group


def test_a_canary_of_messages_is_waited_for_and_stops_the_operation_if_it_fails_again() -> None:
    begin(fail_some_elsewhere(4), canary=1)
    assert bulk.advance() == 1
    time.sleep(0.1)
    assert (bulk.advance(), BulkOperation.objects.get().state) == (0, "running")
    pipeline = TransactionRecord.objects.select_related("pipeline").get().pipeline
    settle(claim(pipeline), failed("the warehouse is closed"))
    advance_until(lambda: BulkOperation.objects.get().state == "stopped")
    assert BulkOperation.objects.get().note == "1 of its replays failed again"
    assert TransactionRecord.objects.count() == 1


def test_an_operation_stops_if_others_fail_in_the_same_way_meanwhile() -> None:
    group = fail_some(4)
    operation = begin(group, canary=1)
    bulk.advance()
    pipeline = TransactionRecord.objects.select_related("pipeline").filter(state=0).get().pipeline
    settle(claim(pipeline))
    submit(pipeline)
    settle(claim(pipeline), failed("the customer is unknown"))
    assert bulk.advance() == 0
    operation.refresh_from_db()
    note = "1 more failed in the same way since it was started or resumed"
    assert (operation.state, operation.note, operation.done) == ("stopped", note, 1)
    bulk.turn(operation.pk, "running", by="ada", reason="that one is known")
    advance_until(lambda: BulkOperation.objects.get().state == "done")
    assert BulkOperation.objects.get().done == 4


@pytest.mark.parametrize("canary", [0, 2])
def test_an_operation_never_touches_more_than_its_cap(canary: int) -> None:
    group = fail_some(6)
    begin(group, cap=2, canary=canary)
    advance_until(lambda: BulkOperation.objects.get().state == "done")
    time.sleep(0.1)
    assert bulk.advance() == 0
    assert DeadLetter.objects.filter(state="replayed").count() == 2


def test_an_operation_that_has_reached_its_cap_ends() -> None:
    group = fail_some(3)
    operation = begin(group, "discard", cap=2)
    BulkOperation.objects.update(done=2)
    assert bulk.advance() == 0
    operation.refresh_from_db()
    assert (operation.state, DeadLetter.objects.filter(state="open").count()) == ("done", 3)


def test_a_group_is_discarded_and_comes_back_as_regressed() -> None:
    group = fail_some(3)
    begin(group, "discard")
    advance_until(lambda: BulkOperation.objects.get().state == "done")
    assert DeadLetterGroup.objects.get().state == GroupState.RESOLVED
    record = TransactionRecord.objects.select_related("pipeline").first()
    assert record is not None
    submit(record.pipeline)
    settle(claim(record.pipeline), failed("the customer is unknown"))
    group.refresh_from_db()
    assert (group.state, group.total, group.open_count) == (GroupState.REGRESSED, 4, 1)


def test_what_somebody_has_settled_meanwhile_is_skipped_and_said() -> None:
    group = fail_some(3)
    operation = begin(group, "discard", cap=2)
    letter = DeadLetter.objects.order_by("pk").first()
    assert letter is not None
    dead_letters.discard(letter.pk, by="bob", reason="mine")
    advance_until(lambda: BulkOperation.objects.get().state == "done")
    assert BulkOperation.objects.get().done == 2
    assert operation.items.count() == 2


def test_an_operation_can_be_paused_resumed_and_cancelled() -> None:
    group = fail_some(3)
    operation = begin(group, canary=1)
    bulk.turn(operation.pk, "paused", by="ada", reason="wait")
    assert bulk.advance() == 0
    bulk.turn(operation.pk, "running", by="ada", reason="go")
    bulk.turn(operation.pk, "cancelled", by="ada", reason="enough")
    with pytest.raises(BulkError, match="that is cancelled cannot become running"):
        bulk.turn(operation.pk, "running", by="ada", reason="again")


def test_two_operations_on_one_group_at_once_are_refused() -> None:
    group = fail_some(2)
    begin(group)
    with pytest.raises(BulkError, match="has not finished"):
        begin(group)


def test_one_leads_until_its_term_is_over() -> None:
    assert workers.lead("chores", "one")
    assert not workers.lead("chores", "two")
    assert workers.lead("chores", "one")
    workers.resign("chores", "one")
    assert workers.lead("chores", "two")


def test_counts_of_workers_and_of_old_days_are_put_together_without_changing_sums() -> None:
    pipeline = make_pipeline()
    now = timezone.now().replace(second=0, microsecond=0)
    for worker in (1, 2):
        for age in (timedelta(0), timedelta(minutes=30), timedelta(days=5), timedelta(days=5, minutes=7)):
            ThroughputFactory.create(pipeline=pipeline, minute=now - age, worker=worker, succeeded=10, failed=1)
    before = status.totals_by_pipeline()[pipeline.pk]
    assert transactions.fold_counts() > 0
    assert status.totals_by_pipeline()[pipeline.pk] == before
    assert Throughput.objects.count() <= 2 + 1 + 2
    assert transactions.fold_counts() == 0


@pytest.mark.django_db(transaction=True)
def test_however_many_counts_have_gathered_are_put_together_in_short_transactions() -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    pipelines = [make_pipeline(name) for name in ("orders", "refunds")]
    rows = [
        Throughput(
            pipeline=pipeline, minute=now - timedelta(days=4, minutes=age), worker=worker, succeeded=age, longest=age
        )
        for pipeline in pipelines
        for age in range(1250)
        for worker in (0, 1)
    ]
    Throughput.objects.bulk_create(rows)
    lengths: list[int] = []

    def count(execute: Any, *given: Any) -> Any:
        if connection.in_atomic_block:
            if not connection.run_on_commit:  # the first of a transaction
                transaction.on_commit(lambda: None)
                lengths.append(0)
            lengths[-1] += 1
        return execute(*given)

    with connection.execute_wrapper(count):
        transactions.fold_counts()
    assert max(lengths) < 100
    kept = Throughput.objects.filter(pipeline=pipelines[0]).values_list("minute", "worker", "succeeded", "longest")
    expected: dict[datetime, list[int]] = {}
    for row in rows[: len(rows) // 2]:
        expected.setdefault(row.minute.replace(minute=0), []).append(row.succeeded)
    assert sorted(kept) == sorted((hour, 0, sum(counts), max(counts)) for hour, counts in expected.items())
    assert transactions.fold_counts() == 0


def test_status_counts_without_looking_at_the_whole_table() -> None:
    pipeline = make_pipeline()
    submit(pipeline, 5)
    batch = claim(pipeline, 3)
    settle(batch[:1])
    settle(batch[1:2], failed())
    (told,) = status.read_status()["pipelines"]
    assert {name: told[name] for name in ("name", "paused", "pending", "running", "succeeded", "failed")} == {
        "name": "orders",
        "paused": False,
        "pending": 2,
        "running": 1,
        "succeeded": 1,
        "failed": 1,
    }
    assert told["oldest_pending_age"] >= 0
    assert status.read_status()["dead_letters"]["open"] == 1
    assert states(batch[2].id) == ["running"]
    assert transactions.find(batch[0].id).word == "succeeded"
