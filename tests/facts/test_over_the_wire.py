"""The boundary on the real server: long polls, metrics by their names, what the doctor says."""

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest
from django.db.models.functions import Now
from prometheus_client.core import Metric

from ergon_site import gauges
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import ledger, provisioning
from facts.models import Boundary, Consumer
from tests.factories import ArtifactFactory
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import LIMIT, Site, eventually, manage

pytestmark = pytest.mark.django_db(transaction=True)

WAITERS, PLACES, LONG = 8, 2, 25


@pytest.fixture
def api(site: Site) -> Iterator[httpx.Client]:
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    token = clients.create("press", Grant(zones=[PLANT], target_zones=[OFFICE], consumers=["erp"]), by="tests").token
    headers = {"Authorization": f"Bearer {token.text}"}
    limits = httpx.Limits(max_connections=WAITERS + 8)
    with httpx.Client(base_url=f"{site.url}/api/v1/", headers=headers, timeout=60, limits=limits) as client:
        yield client


def test_a_long_poll_answers_when_a_fact_arrives(api: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        poll = pool.submit(api.get, f"consumers/erp/facts?wait={LONG}")
        eventually(lambda: Consumer.objects.get().fetched_at is not None, "the poll waits")
        time.sleep(0.5)
        assert not poll.done()
        assert api.post("facts", json=draft(1)).status_code == 201
        page = poll.result().json()
    assert [one["offset"] for one in page["facts"]] == [0]
    assert time.monotonic() - begun < LONG - 5


def test_a_long_poll_that_nothing_comes_for_ends_empty(api: httpx.Client) -> None:
    begun = time.monotonic()
    assert api.get("consumers/erp/facts?wait=1").json() == {"facts": [], "cursor": -1}
    assert time.monotonic() - begun >= 1


def test_many_who_wait_hold_nobody_up(api: httpx.Client) -> None:
    """More wait than the server has threads: some are sent away at once, and all others are served meanwhile."""
    with ThreadPoolExecutor(WAITERS) as pool:
        polls: list[Future[httpx.Response]] = [
            pool.submit(api.get, f"consumers/erp/facts?wait={LONG}") for _ in range(WAITERS)
        ]
        eventually(
            lambda: sum(poll.done() for poll in polls) >= WAITERS - PLACES, "those beyond the places are answered"
        )
        begun = time.monotonic()
        waiting = [poll for poll in polls if not poll.done()]
        assert len(waiting) == PLACES
        assert api.get("consumers/erp").status_code == 200
        assert api.post("facts", json=draft(1)).status_code == 201
        assert [len(poll.result().json()["facts"]) for poll in waiting] == [1] * len(waiting)
        assert time.monotonic() - begun < LONG - 5
    assert all(poll.result().status_code == 200 for poll in polls)


@pytest.mark.parametrize("message_id", ["a/b c", "ü/ß 日本 🚀", "a?b#c&d", "batch", "100%"])
def test_the_real_server_knows_messages_by_whatever_they_are_called(api: httpx.Client, message_id: str) -> None:
    assert api.post("facts", json=draft(1, message_id=message_id)).status_code == 201
    found = api.get(f"facts/{quote(message_id, safe='')}?from_zone={quote(PLANT)}&to_zone={quote(OFFICE)}")
    assert (found.status_code, found.json()["message_id"]) == (200, message_id)


def test_metrics_have_the_names_of_the_specification(api: httpx.Client, site: Site) -> None:
    api.post("facts", json=draft(1))
    api.post("facts", json=draft(1))
    api.post("facts", json=draft(1, object_json=2))
    api.post("facts", json={})
    api.post("facts/batch", json={"facts": [draft(1), draft(2)]})
    api.get("consumers/erp/facts")
    api.post("consumers/erp/confirm", json={"offset": 0})
    api.get("consumers/other")
    httpx.get(f"{site.url}/api/v1/consumers/erp", timeout=LIMIT)
    exposed = httpx.get(f"{site.url}/metrics", timeout=LIMIT).text
    for name in (
        *("append_requests_total", "append_latency_seconds_bucket", "duplicate_appends_total"),
        *("conflicting_duplicates_total", "fetch_requests_total", "confirm_requests_total", "auth_failures_total"),
    ):
        assert re.search(rf"^bsfg_{name}\{{[^}}]*\}} [1-9]", exposed, re.MULTILINE), name
    for code in ("conflicting_duplicate", "invalid_fact"):
        assert re.search(rf'^bsfg_append_failures_total\{{.*code="{code}".*\}} [1-9]', exposed, re.MULTILINE), code
    pair = f'from_zone="{PLANT}",to_zone="{OFFICE}"'
    assert f'bsfg_consumer_backlog{{consumer="erp",{pair}}} 1.0' in exposed
    for name in ("replication_lag_seconds", "frontier_offset", "store_buffer_fill_percent"):
        assert f"bsfg_{name}{{{pair}}}" in exposed, name
    assert f'bsfg_gate_state{{from_zone="{PLANT}",state="normal",to_zone="{OFFICE}"}} 1.0' in exposed
    assert "bsfg_orphan_objects 0.0" in exposed


def test_gauges_follow_the_database() -> None:
    boundary = make_boundary(row_ceiling=10)
    ArtifactFactory.create()
    ledger.append_many([draft(number) for number in range(9)])
    Boundary.objects.filter(pk=boundary.pk).update(frontier=8, gate="autonomous")
    told = {family.name: {tuple(one.labels.values()): one.value for one in family.samples} for family in _families()}
    assert told["bsfg_store_buffer_fill_percent"] == {(PLANT, OFFICE): 90.0}
    assert told["bsfg_frontier_offset"] == {(PLANT, OFFICE): 8}
    assert told["bsfg_replication_lag_seconds"] == {(PLANT, OFFICE): 0.0}
    assert told["bsfg_gate_state"][PLANT, OFFICE, "autonomous"] == 1
    assert told["bsfg_gate_state"][PLANT, OFFICE, "normal"] == 0
    assert told["bsfg_orphan_objects"] == {(): 1}
    assert set(told) == set(gauges.NAMES)


def _families() -> list[Metric]:
    return list(gauges.Gauges().collect())


def test_what_waits_at_a_peer_is_behind_since_the_last_handover() -> None:
    boundary = make_boundary(source_url="https://peer.example", source_token_file="plant")
    changes = {"source_head": 99, "frontier": 49, "handed_over_at": Now() - timedelta(minutes=2)}
    Boundary.objects.filter(pk=boundary.pk).update(**changes)
    lag = next(family for family in gauges.Gauges().collect() if family.name == "bsfg_replication_lag_seconds")
    assert 110 < lag.samples[0].value < 600


def test_the_doctor_says_what_is_beyond_a_warning_line() -> None:
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    assert "boundaries: none above a warning threshold (boundaries: 1, consumers: 1)" in manage("doctor").stdout
    Boundary.objects.update(alarm="other bytes", next_offset=20_000, row_ceiling=20_000)
    told = json.loads(manage("doctor", "--json").stdout)
    found = {(one["check"], one["level"]): one["text"] for one in told["findings"]}
    assert found["boundaries", "problem"] == "Plant A → Enterprise: alarm: other bytes"
    assert found["boundaries", "warning"] == "Plant A → Enterprise: the store buffer is 100 % full"
    assert "20,000 facts behind" in found["consumers of facts", "warning"]


def test_threads_that_ask_for_gauges_at_once_read_them_once() -> None:
    make_boundary()
    reading, found = gauges.Reading(), []
    threads = [
        threading.Thread(target=lambda name=name: found.append(reading.samples(name))) for name in gauges.NAMES[-4:]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
