"""`status` and the list of pipelines take a few statements, however many pipelines there are and however much waits."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engines.reads import depth, status
from tests.commands import ask, run
from tests.durable_transactions import submit
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

PAGE = "/admin/engines/pipeline/"
NUMBERS = {
    "postgresql": "SELECT n FROM generate_series(1, {rows}) n",
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) SELECT n FROM s",
}
SEED = """
INSERT INTO engines_transactionrecord (uid, pipeline_id, state, priority, payload, metadata)
SELECT 't-' || n, {first} + n % {pipelines}, 0, n % 3, '{{"text": "{text}"}}'{json}, '{{}}'{json} FROM ({numbers}) s
"""
STATES = {
    "postgresql": {"as inserted": "SELECT 1", "analysed": "ANALYZE", "vacuumed": "VACUUM ANALYZE"},
    "sqlite": {"as inserted": "SELECT 1"},
}
# Half a second is the goal on a machine that does nothing else. What slows it down also slows down this statement,
# which reads what must be read at least.
LEAST = "SELECT pipeline_id, count(*) FROM engines_transactionrecord WHERE state = 0 GROUP BY pipeline_id"
TIMES_LEAST, TRIES = 5, 5


def seed(rows: int, pipelines: int) -> None:
    """So much waits, in as many pipelines, evenly; neither vacuumed nor analysed."""
    first = min(make_pipeline(f"p{number:03}").pk for number in range(pipelines))
    numbers = NUMBERS[connection.vendor].format(rows=rows)
    json = "::jsonb" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(SEED.format(first=first, pipelines=pipelines, text="x" * 150, json=json, numbers=numbers))


def statements(act: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        act()
    return [query["sql"] for query in queries.captured_queries]


def plan(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        return "\n".join(row[0] for row in cursor.fetchall())


def test_very_many_pipelines_cost_no_more_statements_than_many(browse: Client) -> None:
    seed(100, 25)
    browse.get(PAGE)
    many = [len(statements(act)) for act in (status.read_status, lambda: browse.get(PAGE))]
    assert many[0] < 10
    for number in range(25):
        submit(make_pipeline(f"more{number}"), 1)
    assert [len(statements(act)) for act in (status.read_status, lambda: browse.get(PAGE))] == many


@pytest.mark.parametrize("rows", [200, 3_000])
def test_many_queues_are_counted_alike_together_and_each(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.reads.depth.COUNTED", 100)
    seed(rows, 25)
    told = depth.of_all()
    assert {one.count for one in told.values()} == {min(rows // 25, 101)}
    assert {one.is_capped for one in told.values()} == {rows == 3_000}
    assert {one.oldest_at is None for one in told.values()} == {False}
    each = depth.question(depth.BY_ID, 0, depth.LAST_ID, is_few=True)
    with connection.cursor() as cursor:
        cursor.execute(*each)
        assert {row[0]: row[2] for row in cursor.fetchall()} == {one.pk: told[one].count for one in told}


def test_what_waits_is_exact_up_to_the_cap_and_told_as_more_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.reads.depth.COUNTED", 20)
    submit(make_pipeline("long"), 50)
    submit(make_pipeline("short"), 20)
    told = {row["name"]: (row["pending"], row["is_pending_capped"]) for row in ask("status")["pipelines"]}
    assert told == {"long": (20, True), "short": (20, False)}
    lines = run("status").splitlines()
    assert [line.split()[:3] for line in lines[3:5]] == [["long", "tests.act", "20+"], ["short", "tests.act", "20"]]


@pytest.mark.postgresql
def test_status_finds_what_waits_by_the_index_of_claims() -> None:
    seed(20_000, 40)
    with connection.cursor() as cursor:
        # So few rows may well be read one by one, by what autovacuum has last seen; but they need not be.
        cursor.execute("SET LOCAL enable_seqscan = off")
    asked = [one for one in statements(status.read_status) if "engines_transactionrecord" in one]
    assert asked
    assert [one for one in asked if "Seq Scan on engines_transactionrecord" in plan(one)] == []


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_a_million_in_two_hundred_pipelines_are_told_quickly(browse: Client) -> None:
    seed(1_000_000, 200)
    figures = {row["pending"] for row in status.read_status()["pipelines"]}
    assert figures == {5_000}
    slow = {}
    for state, step in STATES[connection.vendor].items():
        with connection.cursor() as cursor:
            cursor.execute(step)
        least = shortest(f"the least, {state}", count_all)
        for name, act in {"status": status.read_status, "pipelines page": lambda: browse.get(PAGE)}.items():
            taken = shortest(f"{name}, {state}", act)
            if taken > TIMES_LEAST * least:
                slow[f"{name}, {state}"] = taken / least
    assert slow == {}


def count_all() -> None:
    with connection.cursor() as cursor:
        cursor.execute(LEAST)
        assert sum(count for _, count in cursor.fetchall()) == 1_000_000


def shortest(name: str, act: Callable[[], Any]) -> float:
    times = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    print(f"{name}: shortest {min(times):.3f} s, median {statistics.median(times):.3f} s")
    return min(times)
