"""Verbs that want the same rows at the same moment wait for each other in one order, and none of them fails."""

import signal
from contextlib import closing
from datetime import timedelta

import psutil
import psycopg
import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import Count, Sum
from django.utils import timezone

from engines import dead_letters, pipelines, schedules
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Selection, Terms
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, Pipeline, Schedule, Throughput, TransactionRecord
from engines.transactions.errors import PipelineUnknownError
from ergon_site.access.database.calls import retry_conflicts
from facts.models import Boundary, Fact
from tests.commands import next_event
from tests.durable_transactions import (
    claim,
    consume,
    consumer,
    failed,
    make_policy,
    settle,
    states,
    submit,
    wait_until_started,
)
from tests.factories import make_pipeline
from tests.facts.drafts import make_boundary
from tests.faults import rivals
from tests.processes import LIMIT, database_url, eventually, run_module

pytestmark = pytest.mark.django_db(transaction=True)

# SQLite has one writer at a time, so its part is to be patient: the long form proves that.
short = pytest.mark.postgresql
LETTERS, MANY_LETTERS, MANY_ROUNDS = 100, 400, 40


def play(scene: str, *given: object, rounds: int = rivals.ROUNDS) -> list[str]:
    """What the processes of a scene raised."""
    changes = {"PGAPPNAME": "rivals", "RIVAL_ROUNDS": str(rounds)}
    played = run_module("tests.faults.rivals", scene, *map(str, given), **changes)
    assert played.returncode == 0, played.stderr
    return played.stdout.splitlines()


def deadlocks() -> int:
    """How many PostgreSQL has broken up in this database so far."""
    if connection.vendor == "sqlite":
        return 0
    with connection.cursor() as cursor:
        eventually(lambda: not others_connected(), "the other processes' sessions have ended and are counted")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def others_connected() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rivals'"
        )
        return bool(cursor.fetchone()[0])


def open_letters(count: int) -> DeadLetterGroup:
    """So many failed transactions of one kind."""
    pipeline = make_pipeline()
    submit(pipeline, count)
    assert settle(claim(pipeline, count), failed("no such customer")) == []
    return DeadLetterGroup.objects.get()


@short
@pytest.mark.parametrize("verb", ["discard", "replay"])
def test_a_bulk_operation_and_people_who_settle_the_same_letters_do_not_get_in_each_others_way(verb: str) -> None:
    settle_from_both_ends(verb, LETTERS)


@short
def test_a_worker_that_is_frozen_while_it_settles_failures_does_not_hold_up_the_others() -> None:
    pipeline = make_pipeline(policy=make_policy())
    submit(pipeline, fail="no such customer")
    assert consume("orders", "--drain").code == 0
    with consumer("orders", ERGON_LEASE_SECONDS="120") as frozen:
        wait_until_started(frozen)
        with closing(psycopg.connect(database_url())) as holding:
            holding.execute("SELECT id FROM engines_deadlettergroup FOR UPDATE")
            early = submit(pipeline, 3, fail="no such customer")
            eventually(lambda: sessions("wait_event_type = 'Lock'") == 1, "it waits for the group of its failures")
            frozen.send_signal(signal.SIGSTOP)
            eventually(lambda: psutil.Process(frozen.pid).status() == psutil.STATUS_STOPPED, "it stands still")
        eventually(lambda: sessions("state = 'idle in transaction'") == 1, "it has locked the group, and stands still")
        with consumer("orders", ERGON_LEASE_SECONDS="120") as other:
            wait_until_started(other)
            late = submit(pipeline, 3, fail="no such customer")
            eventually(lambda: set(states(*late)) == {"failed"}, "the other one has settled")
            assert set(states(*early)) == {"running"}
            frozen.send_signal(signal.SIGCONT)
            eventually(lambda: set(states(*early)) == {"failed"}, "so has the one that was frozen")
    group = DeadLetterGroup.objects.get()
    assert (group.total, DeadLetter.objects.count()) == (7, 7)


@short
def test_a_maintain_that_is_frozen_in_a_bulk_operation_does_not_hold_up_the_next() -> None:
    group = open_letters(3)
    with consumer(command="maintain", ERGON_LEASE_SECONDS="2") as frozen:  # its term is half of that
        next_event(frozen, "leading")
        with closing(psycopg.connect(database_url())) as holding:
            holding.execute("SELECT id FROM engines_deadletter FOR UPDATE")
            operation = bulk.begin("discard", group.pk, Terms(rate=500.0), by="grace", reason="the bug is mended")
            eventually(lambda: sessions("wait_event_type = 'Lock'") == 1, "it waits for the letters of its operation")
            frozen.send_signal(signal.SIGSTOP)
            eventually(lambda: psutil.Process(frozen.pid).status() == psutil.STATUS_STOPPED, "it stands still")
        # Now it has locked them.
        with consumer(command="maintain"):
            done = BulkOperation.objects.filter(pk=operation.pk, state="done", done=3)
            eventually(done.exists, "the next one has carried the operation out")
        frozen.send_signal(signal.SIGCONT)
        frozen.send_signal(signal.SIGTERM)
        _, errors = frozen.communicate(timeout=LIMIT)
    assert frozen.returncode == 0, errors
    assert list(DeadLetter.objects.values_list("state", flat=True)) == ["discarded"] * 3


@short
def test_a_bulk_operation_that_somebody_holds_does_not_make_schedules_late() -> None:
    group = open_letters(3)
    operation = bulk.begin("discard", group.pk, Terms(rate=500.0), by="grace", reason="the bug is mended")
    with closing(psycopg.connect(database_url())) as holding:
        holding.execute("SELECT id FROM engines_bulkoperation FOR UPDATE")
        with consumer(command="maintain"):
            for name in ("first", "second"):  # the operation is looked at between them
                schedules.create(name, schedules.Plan(pipeline="orders", cron="0 2 * * *"), by="tests")
                Schedule.objects.filter(name=name).update(next_run_at=timezone.now())
                eventually(TransactionRecord.objects.filter(source=f"schedule:{name}").exists, f"the {name} has run")
            holding.rollback()
            done = BulkOperation.objects.filter(pk=operation.pk, state="done")
            eventually(done.exists, "the operation is carried out")


def sessions(condition: str) -> int:
    """How many of this database are in a state."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {condition}")
        return int(cursor.fetchone()[0])


@short
@pytest.mark.parametrize(("verb", "kind"), [("discard", "dead_letter"), ("replay", "transaction")])
def test_selected_rows_of_several_groups_and_people_do_not_get_in_each_others_way(verb: str, kind: str) -> None:
    pipeline = make_pipeline()
    for message in ("no such customer", "no such account", "no such bank", "no such country"):
        submit(pipeline, 20)
        assert settle(claim(pipeline, 20), failed(message)) == []
    column = "pk" if kind == "dead_letter" else "transaction_id"
    keys = tuple(DeadLetter.objects.values_list(column, flat=True))
    before = deadlocks()
    operation = bulk.begin_selected(verb, Selection(kind=kind, keys=keys), Terms(rate=500.0), by="grace", reason="x")
    BulkOperation.objects.update(moved_at=timezone.now() - timedelta(minutes=1))
    assert play("bulk", operation.pk) == []
    assert deadlocks() == before
    operation.refresh_from_db()
    mine = DeadLetter.objects.filter(settled_by="grace").count()
    assert (operation.state, operation.done, operation.skipped) == ("done", mine, 80 - mine)
    assert operation.items.count() == 80
    assert set(DeadLetterGroup.objects.values_list("open_count", "state")) == {(0, "resolved")}
    assert TransactionRecord.objects.filter(replay_of__isnull=False).count() == (80 if verb == "replay" else 0)


@pytest.mark.soak
@pytest.mark.parametrize("verb", ["discard", "replay"])
def test_a_long_bulk_operation_and_people_do_not_get_in_each_others_way(verb: str) -> None:
    settle_from_both_ends(verb, MANY_LETTERS)


def settle_from_both_ends(verb: str, count: int) -> None:
    group = open_letters(count)
    before = deadlocks()
    operation = bulk.begin(verb, group.pk, Terms(rate=500.0), by="grace", reason="the bug is mended")
    # Long enough ago that its pace lets all of them go at once.
    BulkOperation.objects.filter(pk=operation.pk).update(moved_at=timezone.now() - timedelta(minutes=1))
    assert play("bulk", operation.pk) == []
    assert deadlocks() == before
    group.refresh_from_db()
    operation.refresh_from_db()
    by = dict(DeadLetter.objects.order_by().values_list("settled_by").annotate(Count("pk")))
    assert (operation.state, group.open_count, group.state) == ("done", 0, "resolved")
    assert (sum(by.values()), by.get("grace", 0)) == (count, operation.done)
    replays = TransactionRecord.objects.filter(replay_of__isnull=False)
    assert replays.count() == (count if verb == "replay" else 0)


@short
@pytest.mark.parametrize("by", ["id", "dedupe_key"])
def test_two_processes_that_submit_the_same_transactions_in_opposite_orders_both_succeed(by: str) -> None:
    submit_from_both_ends(by, rivals.ROUNDS)


@pytest.mark.soak
@pytest.mark.parametrize("by", ["id", "dedupe_key"])
def test_two_processes_submit_in_opposite_orders_many_times(by: str) -> None:
    submit_from_both_ends(by, MANY_ROUNDS)


def submit_from_both_ends(by: str, rounds: int) -> None:
    make_pipeline()
    before = deadlocks()
    assert play("submit", by, rounds=rounds) == []
    assert deadlocks() == before
    assert TransactionRecord.objects.count() == rounds * rivals.DRAFTS


@short
def test_submissions_that_no_order_can_serve_are_tried_again() -> None:
    make_pipeline()
    assert play("cross") == []
    assert TransactionRecord.objects.count() == rivals.ROUNDS * rivals.DRAFTS


@short
def test_poison_of_several_pipelines_is_rescued_by_several_processes_at_once() -> None:
    names = ["orders", "invoices"]
    made = [make_pipeline(name) for name in names]
    long_ago = timezone.now() - timedelta(hours=1)
    # The first forty lapsed ones are of one pipeline and then of the other; the next forty the other way round.
    for place, pipeline in enumerate([made[0], made[1], made[1], made[0]]):
        submit(pipeline, 20)
        leased = claim(pipeline, 20)
        rows = TransactionRecord.objects.filter(pk__in=[one.lease.id for one in leased])
        rows.update(rescues=2, lease_expires_at=long_ago + timedelta(minutes=place))
    before = deadlocks()
    assert play("rescue") == []
    assert deadlocks() == before
    assert DeadLetter.objects.count() == 80
    assert dict(Throughput.objects.order_by().values_list("pipeline__name").annotate(Sum("failed"))) == {
        "orders": 40,
        "invoices": 40,
    }


@short
def test_failures_are_buried_while_old_ones_of_the_same_kinds_are_pruned() -> None:
    # The keys of the groups must not sort like their fingerprints, by which they are counted.
    kinds = sorted("abcdef", key=lambda one: rivals.draft(one).fingerprint, reverse=True)
    for kind in kinds:
        dead_letters.record([rivals.draft(kind)])
    before = deadlocks()
    assert play("prune", *kinds) == []
    assert deadlocks() == before
    counted = {group.pk: group.open_count for group in DeadLetterGroup.objects.all()}
    assert counted == {pk: DeadLetter.objects.filter(group=pk, state="open").count() for pk in counted}


@short
def test_facts_of_several_boundaries_are_appended_in_opposite_orders() -> None:
    zones = ["Enterprise", "Cloud", "Laboratory"]
    for zone in zones:
        make_boundary(to_zone=zone)
    before = deadlocks()
    assert play("append", *zones) == []
    assert deadlocks() == before
    assert Fact.objects.count() == rivals.ROUNDS * 2 * len(zones)
    assert {one.next_offset for one in Boundary.objects.all()} == {rivals.ROUNDS * 2}


@short
def test_the_loser_of_a_deadlock_is_tried_again_by_itself() -> None:
    for name in ("orders", "invoices"):
        make_pipeline(name)
    before = deadlocks()
    assert play("embrace") == []
    assert deadlocks() > before
    assert set(Pipeline.objects.values_list("priority", flat=True)) == {1}


@short
def test_inside_the_callers_transaction_nothing_is_tried_again() -> None:
    tries = []

    @retry_conflicts
    @transaction.atomic
    def verb() -> None:
        tries.append(1)
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$")

    with pytest.raises(OperationalError, match="conflict"), transaction.atomic():
        verb()
    assert len(tries) == 1
    transaction.set_autocommit(False)
    try:
        with pytest.raises(OperationalError, match="conflict"):
            verb()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert len(tries) == 2
    with pytest.raises(OperationalError, match="conflict"):
        verb()
    assert len(tries) > 3


def test_a_refusal_is_not_tried_again() -> None:
    tries = []

    @retry_conflicts
    def verb() -> None:
        tries.append(1)
        pipelines.find("nowhere")

    with pytest.raises(PipelineUnknownError):
        verb()
    assert len(tries) == 1
