"""How pipelines are doing, read with a handful of statements however long the queues are."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import pipelines, transactions
from engines.core.errors import EngineError
from engines.models import Pipeline, TransactionRecord
from engines.pipelines import Plan
from engines.reads import status as standings
from engines.reads.status import TRENDED, Standing
from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AuditEntry
from tests.factories import ThroughputFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def pipeline() -> Pipeline:
    return pipelines.create("invoices", Plan(task="invoices.import"), by="tests")


def standing(pipeline: Pipeline) -> Standing:
    return standings.statuses([pipeline.pk], database_time())[pipeline.pk]


def test_an_idle_pipeline_has_nothing_to_tell(pipeline: Pipeline) -> None:
    assert standing(pipeline) == Standing(trend=(0,) * TRENDED)
    assert standing(pipeline).failing is None


def test_nobody_is_asked_about_nothing() -> None:
    assert standings.statuses([], timezone.now()) == {}


def test_what_waits_is_counted_whatever_its_priority(pipeline: Pipeline) -> None:
    now = timezone.now()
    for priority, minutes in ((0, 3), (5, 1), (-5, 10)):
        due = now - timedelta(minutes=minutes)
        transactions.submit("invoices", {}, priority=priority, available_at=due)
    found = standing(pipeline)
    assert (found.waiting, found.depth) == (3, "3")
    assert found.oldest_age is not None
    assert 600 <= found.oldest_age < 660


def test_work_that_is_due_later_has_a_negative_age(pipeline: Pipeline) -> None:
    transactions.submit("invoices", {}, available_at=timezone.now() + timedelta(hours=1))
    age = standing(pipeline).oldest_age
    assert age is not None
    assert -3600 < age < -3500


def test_a_long_queue_is_counted_only_so_far(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.reads.depth.COUNTED", 20)
    transactions.submit_many("invoices", [{"payload": number} for number in range(50)])
    found = standing(pipeline)
    assert (found.waiting, found.depth) == (21, "20+")


def test_what_runs_and_what_ended_lately_is_counted(pipeline: Pipeline) -> None:
    transactions.submit("invoices", {})
    TransactionRecord.objects.update(state=1, lease_owner=1, lease_expires_at=timezone.now())
    minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=5)
    for ago, failed in ((0, 15), (120, 99)):
        ThroughputFactory.create(pipeline=pipeline, minute=minute - timedelta(minutes=ago), succeeded=45, failed=failed)
    found = standing(pipeline)
    assert (found.waiting, found.running, found.succeeded, found.failed) == (0, 1, 45, 15)
    assert (found.per_minute, found.failing) == (1.0, 0.25)


def test_many_pipelines_cost_no_more_statements_than_one(pipeline: Pipeline) -> None:
    ids = [pipelines.create(f"p{number}", Plan(task="t"), by="tests").pk for number in range(20)]
    for number in range(20):
        transactions.submit(f"p{number}", {})
    with CaptureQueriesContext(connection) as queries:
        found = standings.statuses(ids, timezone.now())
    assert {one.waiting for one in found.values()} == {1}
    assert len(queries) == 3


def test_a_test_transaction_is_in_the_audit_log_without_its_payload(pipeline: Pipeline) -> None:
    submitted = pipelines.submit_test("invoices", {"iban": "DE1"}, by="ada")
    record = TransactionRecord.objects.get(uid=submitted.id)
    assert (record.payload, record.source) == ({"iban": "DE1"}, "test")
    entry = AuditEntry.objects.get(action="pipeline.submit_test")
    assert (entry.actor, entry.target) == ("ada", "pipeline invoices")
    assert entry.after == {"transaction": submitted.id}


def test_a_test_that_is_refused_leaves_no_trace() -> None:
    with pytest.raises(EngineError, match="no pipeline named 'nowhere'"):
        pipelines.submit_test("nowhere", {}, by="ada")
    assert not AuditEntry.objects.filter(action="pipeline.submit_test").exists()


def test_an_amended_pipeline_still_runs_a_task_or_an_executor(pipeline: Pipeline) -> None:
    with pytest.raises(EngineError, match="a task or an executor: name one of them"):
        pipelines.amend("invoices", Plan(executor="press"), by="ada")
    changed = pipelines.amend("invoices", Plan(task="", executor="press"), by="ada")
    assert (changed.task, changed.executor) == ("", "press")


def test_a_direction_that_does_not_fit_names_the_policy(pipeline: Pipeline) -> None:
    with pytest.raises(EngineError, match="an outbound pipeline needs a producer policy; 'default' is not one"):
        pipelines.amend("invoices", Plan(direction="outbound"), by="ada")
