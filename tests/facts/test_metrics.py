"""What is counted at the boundary: from zero on, with every append, and by whoever hands over."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from django.db import connection

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.gauges import Gauges
from facts import ledger, provisioning
from facts.models import Boundary
from tests.commands import ask, run, running
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import LIMIT, Site, eventually, free_port

pytestmark = pytest.mark.django_db(transaction=True)

COUNTERS = (
    *("append_requests", "duplicate_appends", "conflicting_duplicates", "fetch_requests", "confirm_requests"),
    *("auth_failures", 'append_failures{code="invalid_fact"}', 'append_failures{code="unavailable"}'),
)


def count(exposed: str, name: str) -> float | None:
    """What a counter of the boundary has come to; None if it is not there."""
    name, _, label = name.partition("{")
    pattern = rf"^bsfg_{name}_total\{{[^}}]*{re.escape(label.rstrip('}'))}[^}}]*\}} (\S+)$"
    found = re.search(pattern, exposed, re.MULTILINE)
    return None if found is None else float(found[1])


@pytest.fixture
def api(serve_with: Callable[..., Site]) -> Iterator[httpx.Client]:
    """A server that nobody has called before."""
    site = serve_with()
    make_boundary()
    token = clients.create("mes", Grant(zones=[PLANT], target_zones=[OFFICE]), by="tests").token.text
    with httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {token}"}, timeout=LIMIT) as client:
        yield client


@contextmanager
def no_log() -> Iterator[None]:
    """A database that answers and cannot carry out an append."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE facts_fact RENAME TO facts_fact_away")
        try:
            yield
        finally:
            cursor.execute("ALTER TABLE facts_fact_away RENAME TO facts_fact")


@pytest.mark.once
def test_counters_are_there_before_the_first_call(api: httpx.Client) -> None:
    exposed = api.get("/metrics").text
    assert {name: count(exposed, name) for name in COUNTERS} == dict.fromkeys(COUNTERS, 0.0)


def test_an_append_that_the_database_does_not_carry_out_is_a_failure(api: httpx.Client) -> None:
    with no_log():
        assert api.post("/api/v1/facts", json=draft(1)).status_code >= 500
        assert api.post("/api/v1/facts/batch", json={"facts": [draft(2), draft(3)]}).status_code >= 500
    exposed = api.get("/metrics").text
    assert count(exposed, "append_requests") == 3
    assert count(exposed, 'append_failures{code="unavailable"}') == 3
    assert api.post("/api/v1/facts", json=draft(1)).status_code == 201


@pytest.mark.once
def test_a_body_that_cannot_be_read_is_an_append_that_failed(api: httpx.Client) -> None:
    as_json = {"Content-Type": "application/json"}
    for path in ("/api/v1/facts", "/api/v1/facts/batch"):
        assert api.post(path, content=b"{", headers=as_json).status_code == 400
        assert api.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    too_large = b" " * (65 * 1024 * 1024)
    assert api.post("/api/v1/facts", content=too_large, headers=as_json).status_code == 413
    exposed = api.get("/metrics").text
    assert count(exposed, "append_requests") == 5
    for code, expected in {"invalid_fact": 2, "unsupported_media_type": 2, "payload_too_large": 1}.items():
        assert count(exposed, f'append_failures{{code="{code}"}}') == expected


def gauges() -> dict[str, float]:
    names = ("bsfg_replication_lag_seconds", "bsfg_frontier_offset")
    return {one.name: one.samples[0].value for one in Gauges().collect() if one.name in names}


def test_a_copy_that_the_source_has_made_for_itself_says_nothing_of_what_the_peer_has() -> None:
    make_boundary()
    provisioning.create_consumer("office", PLANT, OFFICE, by="tests")  # the peer reads as this one
    ledger.append_many(draft(number) for number in range(3))
    run("forward", "--drain")
    assert Boundary.objects.get().frontier == 2
    eventually(lambda: gauges()["bsfg_replication_lag_seconds"] > 0, "the peer has nothing")
    assert gauges()["bsfg_frontier_offset"] == -1
    assert [one["backlog"] for one in ask("boundary", "list")] == [3]
    ledger.confirm("office", 1)
    assert gauges()["bsfg_frontier_offset"] == 1
    ledger.confirm("office", 2)
    assert gauges() == {"bsfg_replication_lag_seconds": 0, "bsfg_frontier_offset": 2}
    assert [one["backlog"] for one in ask("boundary", "list")] == [0]


@pytest.mark.once
def test_whoever_hands_over_serves_what_it_counts() -> None:
    make_boundary()
    port = free_port()
    with running("forward", "--json", "--metrics-port", str(port)) as forwarder:
        assert forwarder.stdout is not None
        ledger.append_many([draft(1), draft(2)])
        assert '"handed_over"' in forwarder.stdout.readline()
        address = f"http://127.0.0.1:{port}/metrics"
        eventually(lambda: count(httpx.get(address, timeout=LIMIT).text, "handed_over") == 2, "both are counted")
        assert count(httpx.get(address, timeout=LIMIT).text, "handoff_failures") == 0
        with running("forward", "--metrics-port", str(port)) as second:
            assert second.wait(60) == 1
            assert second.stderr is not None
            assert f"metrics cannot be served on port {port}: Address already in use" in second.stderr.read()
        forwarder.terminate()
        assert forwarder.wait(60) == 0
