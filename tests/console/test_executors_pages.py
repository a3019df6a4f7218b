"""The pages of executors: what each does on every worker, and what a job leaves behind."""

import re
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from engines import conf, pipelines, transactions, workers
from engines.core.errors import RetryLater
from engines.core.outcome import Failure, Later
from engines.executors.settings import executors_in
from engines.executors.task import JobFailed
from engines.models import Pipeline
from engines.reads import executors
from tests.console import records
from tests.executors.telling import beat, process, told, working

pytestmark = pytest.mark.django_db

QUERY_BUDGET = 12
PAGE, LIVE = "/admin/engines/executor/", "/admin/engines/executor/live/"


@pytest.fixture
def jobs() -> Pipeline:
    return pipelines.create("jobs", pipelines.Plan(executor="python"), by="tests")


@pytest.fixture
def _configured(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"command": ["/usr/bin/python3", "-m", "shop", "--password", "in-the-command"], "pool_size": 4}
    about["env"] = {"API_KEY": "in-the-environment"}
    known = replace(conf.settings(), executors=executors_in({"python": about}))
    monkeypatch.setattr(executors, "settings", lambda: known)


def test_without_executors_the_page_says_how_to_configure_one(browse: Client) -> None:
    page = records.read(browse, PAGE)
    assert "No executor is configured" in page
    assert "export ERGON_EXECUTORS=" in page
    assert "pipeline create reports --executor python" in page


@pytest.mark.usefixtures("_configured")
def test_a_configured_executor_is_shown_before_anybody_has_used_it(browse: Client, jobs: Pipeline) -> None:
    page = records.read(browse, PAGE)
    assert "/usr/bin/python3" in page
    assert "4 processes on each worker" in page
    assert "not started" in page
    assert f"/admin/engines/pipeline/{jobs.pk}/change/" in page
    assert "in-the-environment" not in page
    assert "in-the-command" not in page


@pytest.mark.usefixtures("_configured")
def test_what_an_executor_does_on_each_worker_is_shown(browse: Client, jobs: Pipeline) -> None:
    made = transactions.submit("jobs", {"function": "echo"})
    record = transactions.find(made.id)
    first = working(told("python", process(4711, made.id), process(4712), said=["10:00:01 4711: no such order <b>"]))
    second = working(
        told("python", deaths_in_a_row=6, starts_again_in=25.0, last_fault="executor exited with code 137 (SIGKILL)")
    )
    page = records.read(browse, LIVE)
    for worker in (first, second):
        assert f"/admin/engines/worker/{worker.pk}/change/" in page
    assert f"/admin/engines/transactionrecord/{record.pk}/change/" in page
    for words in ("4711", "4712", "2026-01-01 10:00:00", "backing off", "executor exited with code 137 (SIGKILL)"):
        assert words in page
    assert "10:00:01 4711: no such order &lt;b&gt;" in page
    assert re.search(r"Backing off: restarts in \d+\.\d s</strong>, after 6 deaths in a row", page)
    for title, total in (("Jobs answered", 10), ("Starts", 4), ("Deaths", 2), ("Killed on timeout", 6)):
        assert f"<dt>{title}</dt><dd>{total}</dd>" in page


def test_an_executor_that_only_a_worker_knows_is_marked(browse: Client) -> None:
    working(told("elsewhere"))
    page = records.read(browse, PAGE)
    assert "not configured here" in page
    assert "Workers that have it keep running it." in page


def test_many_processes_are_counted_and_the_busy_ones_shown(browse: Client) -> None:
    working(told("python", *(process(number) for number in range(1, 200))))
    page = records.read(browse, PAGE)
    assert page.count('data-label="Process"') == executors.SHOWN
    assert "and 179 more processes" in page


def test_a_workers_page_shows_its_executors_and_one_that_ended_no_processes(browse: Client) -> None:
    worker = working(told("python", process(471147114)))
    address = f"/admin/engines/worker/{worker.pk}/change/"
    page = records.read(browse, address)
    assert "471147114" in page
    assert "5 answered · 2 started · 1 died · 3 killed on timeout · 7 lines ignored" in page
    workers.retire(worker.pk)
    page = records.read(browse, address)
    assert "471147114" not in page
    assert "Its processes ended with the worker." in page


def test_an_executor_that_keeps_dying_needs_a_person(browse: Client) -> None:
    worker = working(told("python", deaths_in_a_row=2))
    assert "keeps dying" not in records.read(browse, "/admin/")
    beat(worker, told("python", deaths_in_a_row=3, last_fault="executor exited with code 9"))
    page = records.read(browse, "/admin/")
    assert f"The executor python keeps dying on {worker}" in page
    assert "executor exited with code 9" in page


def test_hostile_names_and_faults_are_text(browse: Client) -> None:
    working(told("<script>", process(1, "<b>job</b>"), last_fault="<img src=x>"))
    page = records.read(browse, PAGE)
    assert "<img src=x>" not in page
    assert "<b>job</b>" not in page
    assert "&lt;script&gt;" in page


def test_the_dead_letter_of_a_job_shows_its_function_its_executor_and_the_last_words(
    browse: Client, jobs: Pipeline
) -> None:
    died = JobFailed("executor exited with code 137 (SIGKILL): 'node'", error_type="ExecutorDied")
    died.details = "loading the model\nout of memory"
    letter = records.fail(jobs, {"function": "node#resize", "args": []}, Failure(died))
    for address in (
        f"/admin/engines/deadletter/{letter.pk}/change/",
        f"/admin/engines/transactionrecord/{letter.transaction_id}/change/",
    ):
        page = records.read(browse, address)
        assert "<dt>Function</dt><dd><code>resize</code></dd>" in page
        assert 'href="/admin/engines/executor/#executor-node">node</a>' in page
        assert "Last lines on the executor&#x27;s stderr" in page
        assert "out of memory" in page
        assert "Traceback" not in page


def test_a_hidden_function_stays_hidden(browse: Client) -> None:
    secret = pipelines.create("jobs", pipelines.Plan(executor="python", redacted=["function"]), by="tests")
    letter = records.fail(secret, {"function": "node#crop_image"})
    page = records.read(browse, f"/admin/engines/deadletter/{letter.pk}/change/")
    assert "crop_image" not in page
    assert "Traceback" in page


def test_a_transaction_that_was_put_back_says_why_and_until_when(browse: Client, jobs: Pipeline) -> None:
    made = transactions.submit("jobs", {"function": "echo"})
    (leased,) = transactions.claim(jobs.pk, 1, 1)
    later = RetryLater("the bank is closed")
    later.error_type = "RetryJob"
    leased.lease.attempts += [(one, None) for one in records.tries(Failure(later))]
    outcome = Later(seconds=600.0, spent=2, failure=Failure(later))
    transactions.postpone([transactions.Settlement(leased, outcome)])
    page = records.read(browse, f"/admin/engines/transactionrecord/{transactions.find(made.id).pk}/change/")
    sentence = "Due in 10 min; its handler asked for a retry after 2 attempts (RetryJob: the bank is closed)."
    assert sentence in strip_tags(page)
    assert "Last failure" in page
    assert "after 2 attempts" in page


def test_only_those_with_a_role_see_executors(client: Client, hire: Any, django_user_model: Any) -> None:
    client.force_login(django_user_model.objects.create_user("bob", is_staff=True))
    assert client.get(PAGE).status_code == 403
    assert client.get(LIVE).status_code == 403
    client.force_login(hire("viewer"))
    assert client.get(PAGE).status_code == 200


def test_the_pages_stay_within_their_query_budget(browse: Client, jobs: Pipeline) -> None:
    for number in range(30):
        made = transactions.submit("jobs", {"function": "echo"})
        worker = working(*(told(f"x{number % 3}{one}", process(1, made.id)) for one in range(3)))
    for page in (PAGE, LIVE, f"/admin/engines/worker/{worker.pk}/change/"):
        with CaptureQueriesContext(connection) as queries:
            assert browse.get(page).status_code == 200
        assert len(queries) <= QUERY_BUDGET, page
