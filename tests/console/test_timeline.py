"""The timeline of a transaction: everything that happened to it, from any app, with links both ways."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import engines
from engines import dead_letters, policies, schedules, transactions
from engines.core.attempt import AttemptRecord
from engines.core.outcome import Later
from engines.core.steps import Stage
from engines.dead_letters import DeadLetterDraft, bulk
from engines.models import Attempt, DeadLetter, Pipeline, TransactionRecord
from engines.reads import explain
from facts import ledger, provisioning
from facts.models import Fact
from providers.models import ProviderExecutionMetric
from tests.console import records
from tests.console.records import read
from tests.console.test_pages import QUERY_BUDGET
from tests.engines.test_database_connector import drain
from tests.factories import BoundaryFactory, make_pipeline
from tests.facts import drafts
from tests.providers.scripted_providers import scripted

pytestmark = pytest.mark.django_db

LONG = "Traceback (most recent call last):\n" + '  File "/srv/shop/tasks.py", line 3, in act\n    act()\n' * 900


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders")


def page_of(row: Any) -> str:
    return f"/admin/{row._meta.app_label}/{row._meta.model_name}/{row.pk}/change/"


def lines(page: str) -> list[str]:
    """The headings of the events, as a reader hears them."""
    heads = re.findall(r'<div class="ergon-try-head">(.*?)</div>', page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", head).split()) for head in heads]


def cost(client: Client, address: str) -> tuple[str, int]:
    with CaptureQueriesContext(connection) as queries:
        page = read(client, address)
    return page, len(queries)


def call(uid: str, **fields: Any) -> ProviderExecutionMetric:
    known = {
        "tenant_id": "t",
        "provider_name": "carrier",
        "capability": "labels",
        "operation": "order",
        "idempotency_key": "k",
        "attempt_number": 1,
        "max_attempts": 3,
        "duration_ms": 80.0,
        "outcome": "success",
        "retryable": False,
    }
    return ProviderExecutionMetric.objects.create(correlation_id=uid, **known | fields)


def park(pipeline: Pipeline, *, spent: int = 1, of: int = 6, seconds: float = 3600.0, left: float = 500.0) -> None:
    """Claim the next transaction of a pipeline, let it fail, and park it until its next attempt."""
    (leased,) = transactions.claim(pipeline.pk, 1, 1)
    failure = records.failure("no answer")
    tried = AttemptRecord(Stage.PROCESS, spent, of, 0.0, 0.1, failure)
    leased.lease.attempts.append((tried, None))
    later = Later(seconds, spent, failure, of=of, is_parked=True, time_left=left, timeout=600.0)
    transactions.postpone([transactions.Settlement(leased, later)], worker=1)


def test_everything_that_belongs_to_a_transaction_is_on_one_timeline_and_leads_back(
    browse: Client, orders: Pipeline
) -> None:
    boundary = BoundaryFactory.create()
    provisioning.create_consumer("billing", drafts.PLANT, drafts.OFFICE, by="tests")
    letter = records.fail(orders, {"order": 7}, id="order-7")
    made = call("order-7", outcome="failed", reason_code="timeout", http_status=504)
    ledger.append(drafts.draft(message_id="released", correlation_id="order-7"))
    new = transactions.find(transactions.replay_letter(letter.pk, by="ada", reason="the bank is back"))
    transactions.submit("orders", {}, id="parcel", parent_id="order-7")
    failed, child = transactions.find("order-7"), transactions.find("parcel")
    page, queries = cost(browse, page_of(failed))
    told = lines(page)
    for expected in (
        "Submitted to orders",
        "process attempt 1 of 1 failed · SYSTEM 400 ms",
        "Call to carrier labels: order failed 80 ms",
        "Failed",
        "Dead letter: ConnectionError Its group",
        "Replayed by ada",
        f"Replayed as {new.uid} in orders pending",
        "Led to parcel in orders pending",
    ):
        assert expected in told, told
    assert any(line.startswith("Fact:") and line.endswith("Consumer billing") for line in told)
    assert "attempt 1 of 3, timeout, HTTP 504" in page
    assert "not yet read by billing" in page
    assert queries <= QUERY_BUDGET
    fact = f"/admin/facts/fact/{boundary.pk}-0/change/"
    for address in (page_of(letter), page_of(made), page_of(new), page_of(child), fact):
        assert address in page or address == fact
        back, queries = cost(browse, address)
        assert page_of(failed) in back, address
        assert queries <= QUERY_BUDGET, address
    assert fact in page


def test_a_parked_transaction_says_what_it_waits_for_and_what_it_has_used_up(browse: Client) -> None:
    policies.write("patient", {"loop": {"transaction_timeout": 600}}, kind="consumer", by="tests", reason="slow")
    patient = make_pipeline("patient", policy="patient")
    records.make_worker("patient")
    transactions.submit("patient", {}, id="slow")
    park(patient, spent=3)
    page, queries = cost(browse, page_of(transactions.find("slow")))
    assert re.search(r'Due in <span data-countdown="3[3-6]\d\d\.\d">\d\d min</span>; attempt 4 of 6 is next', page)
    assert "3 of 6 used" in page
    assert re.search(r"[123]\d\d s of 10 min used", page)
    assert "Next attempt" in lines(page)
    assert queries <= QUERY_BUDGET
    facts = explain.explain("slow")["facts"]
    assert {"attempts": 3, "of": 6, "limit": 600.0}.items() <= facts["progress"].items()


def test_of_very_many_attempts_the_newest_are_shown_and_the_others_counted(browse: Client, orders: Pipeline) -> None:
    letter = records.fail(orders, {}, id="stubborn")
    record = transactions.find("stubborn")
    (first,) = Attempt.objects.filter(transaction_id=record.pk)
    began = first.started_at
    many = []
    for number in range(200):
        names = [field.attname for field in Attempt._meta.local_fields if field.attname != "pk"]
        fields = {name: getattr(first, name) for name in names}
        fields |= {"number": number + 2, "of_total": 300, "traceback": LONG, "delivery": 1, "message": "m" * 9000}
        many.append(Attempt(**fields | {"started_at": began + timedelta(milliseconds=number)}))
    Attempt.objects.bulk_create(many)
    page, queries = cost(browse, page_of(record))
    assert queries <= QUERY_BUDGET
    assert "and 144 more" in page
    assert "attempt 201 of 300" in page
    assert "attempt 20 of 300" not in page
    assert page.count("/srv/shop/tasks.py") < 60 * 80 + 1000
    assert "attempt 20 of 300" in read(browse, f"{page_of(record)}?timeline=all")
    page, queries = cost(browse, page_of(letter))
    assert "attempt 201 of 300" in page
    assert queries <= QUERY_BUDGET


def test_a_scheduled_run_and_its_schedule_know_each_other(browse: Client, orders: Pipeline) -> None:
    plan = schedules.Plan(pipeline="orders", cron="* * * * *")
    schedule = schedules.create("nightly", plan, by="tests")
    type(schedule).objects.update(next_run_at=timezone.now() - timedelta(seconds=5))
    assert schedules.fire() == 1
    run = TransactionRecord.objects.get()
    assert page_of(schedule) in read(browse, page_of(run))
    page, queries = cost(browse, page_of(schedule))
    assert page_of(run) in page
    assert queries <= QUERY_BUDGET


def test_a_bulk_operation_and_the_transactions_that_it_replayed_know_each_other(
    browse: Client, orders: Pipeline
) -> None:
    letter = records.fail(orders, {}, id="lost")
    operation = bulk.begin("replay", letter.group_id, bulk.Terms(rate=500), by="ada", reason="the bank is back")
    type(operation).objects.update(moved_at=timezone.now() - timedelta(minutes=1))
    assert bulk.advance() == 1
    new = transactions.find(DeadLetter.objects.get().replayed_as)
    assert page_of(new) in read(browse, page_of(operation))
    for one in (transactions.find("lost"), new, letter):
        assert page_of(operation) in read(browse, page_of(one)), one


def test_a_fact_and_the_dead_letter_of_its_reader_know_each_other(browse: Client) -> None:
    boundary = BoundaryFactory.create()
    provisioning.create_consumer("billing", drafts.PLANT, drafts.OFFICE, by="tests")
    ledger.append(drafts.draft(message_id="released"))
    known: dict[str, Any] = {
        "step": "process",
        "category": "SYSTEM",
        "error_type": "Gone",
        "message": "410",
        "details": {},
    }
    (letter,) = dead_letters.record([DeadLetterDraft(source="billing", uid="released", **known)])
    ledger.confirm("billing", 0)
    fact = f"/admin/facts/fact/{boundary.pk}-0/change/"
    page, queries = cost(browse, fact)
    assert "confirmed by billing" in page
    assert page_of(letter) in page
    assert queries <= QUERY_BUDGET
    assert fact in read(browse, page_of(letter))


def test_a_shared_correlation_id_brings_no_strangers(browse: Client, orders: Pipeline) -> None:
    """Only one that nobody else has says whose a call is; a batch is found by the link to its list."""
    records.succeed(orders, {}, id="one", correlation_id="batch")
    call("batch")
    assert any("Call to carrier" in line for line in lines(read(browse, page_of(transactions.find("one")))))
    records.succeed(orders, {}, id="two", correlation_id="batch")
    page = read(browse, page_of(transactions.find("one")))
    assert not any("Call to carrier" in line for line in lines(page))
    assert "?correlation=batch" in page


@engines.task("tests.calls_and_appends")
class CallsAndAppends(engines.ConsumerTask):
    """Names no transaction: neither the call nor the facts have its id as their correlation id."""

    def process_transaction(self, transaction: engines.Transaction) -> None:
        scripted({}).ask(correlation_id="of-the-author")
        ledger.append(drafts.draft("one"))
        ledger.append_many(drafts.draft(number) for number in range(transaction.payload))
        connection.close()  # this thread's


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("facts", [1, 50])
def test_calls_and_facts_of_a_handler_know_its_transaction_whatever_ids_they_have(browse: Client, facts: int) -> None:
    pipeline, boundary = make_pipeline("parcels", task="tests.calls_and_appends"), BoundaryFactory.create()
    transactions.submit("parcels", facts, id="parcel-7")
    drain(pipeline)
    ledger.append(drafts.draft("by nobody"))
    record, made = transactions.find("parcel-7"), ProviderExecutionMetric.objects.get()
    assert record.word == "succeeded"
    assert made.transaction_id == "parcel-7"
    known = Fact.objects.values_list("transaction_id", flat=True)
    assert sorted(known, key=str) == [None, *["parcel-7"] * (facts + 1)]
    page = read(browse, page_of(record))
    fact = f"/admin/facts/fact/{boundary.pk}-0/change/"
    for address in (page_of(made), fact):
        assert address in page
        assert page_of(record) in read(browse, address)


def test_hostile_texts_stay_texts(browse: Client, orders: Pipeline) -> None:
    records.fail(orders, {}, records.failure("<script>alert(1)</script>"), id="<b>", source="</li><script>")
    page = read(browse, page_of(transactions.find("<b>")))
    assert "<script>alert" not in page
    assert "</li><script>" not in page
