"""The pages of pipelines: figures and their links, pausing, tests, making and changing, rights."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import pipelines, policies, schedules, transactions, workers
from engines.models import Pipeline, TransactionRecord
from engines.pipelines import Plan
from engines.tasks import registry
from ergon_site.access.models import AuditEntry
from tests.console import records
from tests.factories import ThroughputFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]

QUERY_BUDGET = 12
DIALOG = {"_form_submitted": "on", "reason": "maintenance until two"}


@pytest.fixture
def pipeline() -> Pipeline:
    return pipelines.create("invoices", Plan(task="invoices.import"), by="tests")


def address(pipeline: Pipeline, last: str = "change") -> str:
    return f"/admin/engines/pipeline/{pipeline.pk}/{last}/"


def ended(pipeline: Pipeline, *, succeeded: int, failed: int, minutes: int = 3) -> None:
    minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    ThroughputFactory.create(pipeline=pipeline, minute=minute, succeeded=succeeded, failed=failed)


def form(**changes: Any) -> dict[str, Any]:
    sent = {"task": "invoices.import", "executor": "", "direction": "inbound", "connector": "database"}
    sent |= {"policy": "default", "priority": "0", "is_enabled": "on", "reason": "new line"}
    return sent | {"keep_succeeded_days": "7", "keep_failed_days": "90", "redacted": "", **changes}


def test_each_number_of_the_list_leads_to_the_transactions_behind_it(browse: Client, pipeline: Pipeline) -> None:
    transactions.submit("invoices", {}, available_at=timezone.now() - timedelta(minutes=10))
    transactions.submit("invoices", {})
    ended(pipeline, succeeded=45, failed=15)
    row = browse.get("/admin/engines/pipeline/").content.decode().split('id="result_list"')[1]
    for state, number in (("pending", "2"), ("running", "0"), ("succeeded", "1 / min"), ("failed", "25.0 %")):
        link = f'href="/admin/engines/transactionrecord/?pipeline=invoices&amp;state={state}">{number}</a>'
        assert link in row, state
    assert "10 min" in row
    assert "default v1" in row


def test_a_long_queue_is_told_as_such(browse: Client, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.reads.depth.COUNTED", 20)
    transactions.submit_many("invoices", [{"payload": number} for number in range(30)])
    assert "20+</a>" in browse.get("/admin/engines/pipeline/").content.decode()


def test_a_paused_pipeline_says_by_whom_and_why(browse: Client, pipeline: Pipeline) -> None:
    pipelines.pause("invoices", by="grace", reason="provider away")
    for page in ("/admin/engines/pipeline/?state=paused", address(pipeline)):
        text = browse.get(page).content.decode()
        assert "grace" in text
        assert "provider away" in text
    assert "No results" in browse.get("/admin/engines/pipeline/?state=open").content.decode()


def test_pausing_and_resuming_ask_why(browse: Client, pipeline: Pipeline) -> None:
    assert "No new transactions are started" in browse.get(address(pipeline, "pause")).content.decode()
    browse.post(address(pipeline, "pause"), {**DIALOG, "reason": ""})
    assert not Pipeline.objects.get().is_paused
    assert browse.post(address(pipeline, "pause"), DIALOG).headers["HX-Redirect"] == address(pipeline)
    assert Pipeline.objects.get().pause_reason == "maintenance until two"
    assert address(pipeline, "resume") in browse.get(address(pipeline)).content.decode()
    browse.post(address(pipeline, "resume"), {**DIALOG, "reason": "over"})
    assert not Pipeline.objects.get().is_paused
    entries = AuditEntry.objects.filter(action__in=["pipeline.pause", "pipeline.resume"]).order_by("id")
    assert [(entry.actor, entry.reason) for entry in entries] == [("ada", "maintenance until two"), ("ada", "over")]


def test_the_page_shows_facts_figures_workers_schedules_and_the_last_hour(browse: Client, pipeline: Pipeline) -> None:
    pipelines.amend("invoices", Plan(redacted=["customer.iban"]), by="ada")
    schedules.create("nightly", schedules.Plan(pipeline="invoices", cron="0 2 * * *"), by="ada")
    worker = workers.enrol(["invoices"])
    ended(pipeline, succeeded=45, failed=15)
    page = browse.get(address(pipeline)).content.decode()
    for words in ("invoices.import", "customer.iban", "nightly", str(worker), "default v1"):
        assert words in page
    assert f'data-charts="/admin/series/?of=pipeline&amp;key={pipeline.pk}"' in page


def test_a_pipeline_without_work_or_worker_says_so(browse: Client, pipeline: Pipeline) -> None:
    page = browse.get(address(pipeline)).content.decode()
    assert "No worker serves this pipeline" in page


def test_the_figures_refresh_by_themselves(browse: Client, pipeline: Pipeline) -> None:
    assert f'data-live="{address(pipeline, "live")}"' in browse.get(address(pipeline)).content.decode()
    transactions.submit("invoices", {})
    part = browse.get(address(pipeline, "live")).content.decode()
    assert ">1</a>" in part
    assert "<html" not in part


def test_a_test_transaction_is_submitted(browse: Client, pipeline: Pipeline) -> None:
    answer = browse.post(address(pipeline, "submit-test"), {"payload": '{"order": 7}'}, follow=True)
    record = TransactionRecord.objects.get()
    assert record.payload == {"order": 7}
    assert answer.redirect_chain == [(f"/admin/engines/transactionrecord/{record.pk}/change/", 302)]
    assert f"Submitted as {record.uid}." in answer.content.decode()
    assert AuditEntry.objects.get(action="pipeline.submit_test").actor == "ada"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ('{"a": }', "This is not JSON: Expecting value: line 1 column 7"),
        ("", "This field is required."),
        ("NaN", "NaN is not a JSON number."),
        (f'"{"x" * 1_048_577}"', "The payload has 1,048,579 bytes; the limit is 1,048,576."),
    ],
)
def test_a_payload_that_cannot_be_kept_is_refused_in_words(
    browse: Client, pipeline: Pipeline, payload: str, words: str
) -> None:
    page = browse.post(address(pipeline, "submit-test"), {"payload": payload}).content.decode()
    assert words in page.split('id="id_payload_error"')[1]
    assert not TransactionRecord.objects.exists()


def test_a_pipeline_is_made_with_a_choice_of_known_tasks(browse: Client) -> None:
    registry.tasks.add("tests.known", object)
    page = browse.get("/admin/engines/pipeline/add/").content.decode()
    assert '<option value="tests.known">' in page
    changes = {"name": "rates", "redacted": "customer.iban\n\n name \n", "is_enabled": "", "priority": "-3"}
    answer = browse.post("/admin/engines/pipeline/add/", form(**changes))
    made = Pipeline.objects.get(name="rates")
    assert answer.headers["Location"] == address(made)
    assert (made.task, made.redacted, made.is_enabled, made.priority) == (
        *("invoices.import", ["customer.iban", "name"]),
        *(False, -3),
    )
    assert AuditEntry.objects.get(action="pipeline.create").reason == "new line"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "invoices"}, "There is a pipeline named invoices already."),
        ({"name": "a b"}, "A pipeline&#x27;s name has 1 to 100 letters"),
        ({"executor": "press"}, "A pipeline runs a task or an executor: name one of them."),
        ({"task": ""}, "A pipeline runs a task or an executor: name one of them."),
        ({"direction": "outbound"}, "An outbound pipeline needs a producer policy; &#x27;default&#x27; is not one."),
        ({"policy": "none"}, "Select a valid choice"),
        ({"keep_failed_days": "0"}, "greater than or equal to 1"),
        ({"priority": str(2**31)}, "less than or equal to"),
        ({"reason": ""}, "This field is required."),
    ],
)
def test_a_wrong_pipeline_is_refused_and_the_input_kept(
    browse: Client, pipeline: Pipeline, change: dict[str, str], words: str
) -> None:
    page = browse.post("/admin/engines/pipeline/add/", form(name="rates", connector="erp") | change).content.decode()
    assert words in page
    assert 'value="erp"' in page
    assert Pipeline.objects.count() == 1


def test_a_pipeline_is_changed_by_the_verb(browse: Client, pipeline: Pipeline) -> None:
    policies.write("patient", {}, kind="consumer", by="ada", reason="x")
    assert 'value="invoices.import"' in browse.get(address(pipeline, "edit")).content.decode()
    changes = {"policy": "patient", "task": "", "executor": "press", "keep_succeeded_days": "30"}
    assert browse.post(address(pipeline, "edit"), form(**changes)).status_code == 302
    changed = Pipeline.objects.select_related("policy").get()
    assert (changed.policy.name, changed.executor, changed.keep_succeeded_days) == ("patient", "press", 30)
    entry = AuditEntry.objects.get(action="pipeline.amend")
    assert entry.reason == "new line"
    assert entry.before is not None
    assert entry.before["policy"] == "default"


def test_the_menu_leads_to_the_pages_of_the_engines(client: Client, hire: Callable[[str], User]) -> None:
    client.force_login(hire("viewer"))
    home = client.get("/admin/").content.decode()
    for name in ("pipeline", "policy", "schedule", "worker"):
        assert f'href="/admin/engines/{name}/"' in home


RIGHTS = {"viewer": (False, False), "operator": (True, False), "lead": (True, True), "policy editor": (False, False)}


def test_a_pipeline_that_nobody_has_paused_is_active_and_not_open(browse: Client, pipeline: Pipeline) -> None:
    shown = records.read(browse, "/admin/engines/pipeline/")
    assert '<span class="ergon-tag ergon-tag-good">active</span>' in shown
    assert ">open</span>" not in shown


@pytest.mark.parametrize("role", RIGHTS)
def test_buttons_are_pressed_by_those_who_may_and_shown_to_all(
    client: Client, hire: Callable[[str], User], role: str, pipeline: Pipeline
) -> None:
    operates, leads = RIGHTS[role]
    client.force_login(hire(role))
    page = client.get(address(pipeline)).content.decode()
    assert ("Pause, Submit a test: needs the role operator or lead or administrator." in page) is not operates
    assert ("Edit: needs the role lead or administrator." in page) is not leads
    assert (client.post(address(pipeline, "pause"), DIALOG).status_code == 302) is operates
    assert (client.get(address(pipeline, "submit-test")).status_code == 200) is operates
    assert (client.get(address(pipeline, "edit")).status_code == 200) is leads
    assert (client.get("/admin/engines/pipeline/add/").status_code == 200) is leads
    offered = 'href="/admin/engines/pipeline/add/"' in client.get("/admin/engines/pipeline/").content.decode()
    assert offered is leads


def test_rows_are_neither_deleted_nor_changed_past_the_verbs(browse: Client, pipeline: Pipeline) -> None:
    assert browse.post(address(pipeline, "delete"), {"post": "yes"}).status_code == 403
    assert browse.post(address(pipeline), {"name": "other"}).status_code == 403
    assert browse.get("/admin/engines/pipeline/99999/change/").status_code == 404
    assert browse.post("/admin/engines/pipeline/99999/pause/", DIALOG).status_code == 404


def test_the_pages_stay_within_their_query_budget(
    client: Client, hire: Callable[[str], User], pipeline: Pipeline
) -> None:
    client.force_login(hire("administrator"))
    for number in range(22):
        made = pipelines.create(f"p{number}", Plan(task="t"), by="ada")
        transactions.submit(made.name, {})
        ended(made, succeeded=1, failed=1)
        schedules.create(f"s{number}", schedules.Plan(pipeline="invoices", cron="0 2 * * *"), by="ada")
        workers.enrol(["invoices"])
    pages = [address(pipeline, last) for last in ("change", "live", "edit", "submit-test")]
    pages += ["/admin/engines/pipeline/", "/admin/engines/pipeline/add/"]
    for page in pages:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(page).status_code == 200
        assert len(queries) <= QUERY_BUDGET, page
