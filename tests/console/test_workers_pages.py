"""The pages of workers: who is there, who went, and nothing to press."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import workers
from engines.models import Worker

pytestmark = [pytest.mark.django_db, pytest.mark.once]

QUERY_BUDGET = 12


def enrol(host: str) -> Worker:
    worker = workers.enrol(["invoices", "rates"])
    Worker.objects.filter(pk=worker.pk).update(host=host)
    return worker


def listed(browse: Client, query: str = "") -> list[str]:
    rows = browse.get(f"/admin/engines/worker/{query}").content.decode().split('class="data-row')[1:]
    return [host for row in rows for host in ("alpha", "beta", "gamma", "delta") if host in row]


def test_the_living_are_shown_first_and_the_others_when_asked_for(browse: Client) -> None:
    enrol("alpha")
    workers.mark_dead(enrol("beta").pk, note="no heartbeat")
    workers.retire(enrol("gamma").pk)
    enrol("delta")
    assert listed(browse) == listed(browse, "?state=alive") == ["delta", "alpha"]
    assert listed(browse, "?state=silent") == []
    assert listed(browse, "?state=dead") == ["beta"]
    assert listed(browse, "?state=stopped") == ["gamma"]
    assert listed(browse, "?state=all") == ["delta", "gamma", "beta", "alpha"]


def test_a_row_says_what_a_worker_has_in_hand(browse: Client) -> None:
    worker = enrol("alpha")
    workers.beat(worker, in_flight=7, abandoned=3, settled=48_210, is_stopping=True)
    row = browse.get("/admin/engines/worker/").content.decode().split('class="data-row')[1]
    for words in (f"alpha:{worker.pid}", "stopping", "invoices, rates", ">7<", ">3<", "48,210", "ago"):
        assert words in row


def test_a_dead_worker_is_marked_with_what_is_known(browse: Client) -> None:
    worker = enrol("beta")
    workers.mark_dead(worker.pk, note="no heartbeat within its lease")
    page = browse.get(f"/admin/engines/worker/{worker.pk}/change/").content.decode()
    assert "ergon-tag-bad" in page
    assert "no heartbeat within its lease" in page


def test_a_worker_that_has_not_been_heard_of_for_a_lease_is_silent(browse: Client) -> None:
    worker = enrol("alpha")
    Worker.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=5))
    assert ">silent</span>" in browse.get("/admin/engines/worker/").content.decode()
    assert (listed(browse, "?state=silent"), listed(browse, "?state=alive")) == (["alpha"], [])
    page = browse.get(f"/admin/engines/worker/{worker.pk}/change/").content.decode()
    assert "no heartbeat for longer than its lease" in page
    assert "5 min ago" in page


def test_an_empty_list_says_how_to_start_one(browse: Client) -> None:
    assert "The command consume starts one" in browse.get("/admin/engines/worker/").content.decode()


def test_workers_are_only_looked_at(browse: Client) -> None:
    worker = enrol("alpha")
    assert browse.get("/admin/engines/worker/add/").status_code == 403
    assert browse.post(f"/admin/engines/worker/{worker.pk}/change/", {"host": "x"}).status_code == 403
    assert browse.post(f"/admin/engines/worker/{worker.pk}/delete/", {"post": "yes"}).status_code == 403


def test_the_pages_stay_within_their_query_budget(browse: Client) -> None:
    for number in range(60):
        enrol(f"host{number}")
    worker = enrol("alpha")
    for page in ("/admin/engines/worker/", f"/admin/engines/worker/{worker.pk}/change/"):
        with CaptureQueriesContext(connection) as queries:
            assert browse.get(page).status_code == 200
        assert len(queries) <= QUERY_BUDGET, page
