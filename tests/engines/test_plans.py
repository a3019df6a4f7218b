"""The plans of the hot statements on a table with a long history: an index for each, and never the whole table."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from engines.models import Pipeline
from engines.reads import depth
from engines.transactions.statements import postgresql, sqlite
from tests.durable_transactions import submit
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

SEED = """
INSERT INTO engines_transactionrecord (uid, pipeline_id, state, priority, available_at, payload, metadata, created_at,
  started_at, finished_at, fencing_token, attempts)
SELECT 'seed-' || n, %s, CASE WHEN n %% 50 = 0 THEN 3 ELSE 2 END, 0, now() - n * interval '1 second', '{"n": 1}', '{}',
  now() - n * interval '1 second', now(), now(), 1, 1 FROM generate_series(1, %s) n
"""
BURST = """
INSERT INTO engines_transactionrecord (uid, pipeline_id, priority, payload, metadata)
SELECT 'burst-' || n, %s, 0, '{"n": 1}', '{}' FROM generate_series(1, %s) n
"""
COUNT = """
SELECT count(*) FROM (SELECT 1 FROM engines_transactionrecord WHERE state = 0 AND pipeline_id = %s
                      ORDER BY priority DESC, available_at LIMIT 10001) counted
"""
RUNNING = """
SELECT pipeline_id, count(*) FROM engines_transactionrecord
 WHERE lease_expires_at BETWEEN '1970-01-01' AND '9999-01-01' GROUP BY 1
"""
# Of higher priorities than what is due.
DELAYED = """
INSERT INTO engines_transactionrecord (uid, pipeline_id, priority, available_at, payload, metadata)
SELECT 'later-' || n, %s, 5 + n %% 3, now() + n * interval '1 hour', '{}', '{}' FROM generate_series(1, %s) n
"""
STATEMENTS: dict[str, tuple[str, list[Any], set[str]]] = {
    "claim": (
        postgresql.CLAIM.format(count=100, commit="", **postgresql.BY_PRIORITY),
        [1, 1, 1, 30.0],
        {"t_claim", "engines_transactionrecord_pkey"},
    ),
    "claim by age": (
        postgresql.CLAIM.format(count=100, commit="", **postgresql.OLDEST_FIRST),
        [1, 1, 1, 30.0],
        {"t_age", "engines_transactionrecord_pkey"},
    ),
    "settle": (
        postgresql.SETTLE,
        ['[{"id": 1, "token": 1, "state": 2}]', 1, '[{"id": 1, "token": 1, "step": 1}]', 1],
        {"engines_transactionrecord_pkey"},
    ),
    "renew": (postgresql.RENEW, ['[{"id": 1, "token": 1}]', 30.0], {"engines_transactionrecord_pkey"}),
    "release": (postgresql.RELEASE, ['[{"id": 1, "token": 1}]'], {"engines_transactionrecord_pkey"}),
    "rescue": (
        postgresql.RESCUE.format(which=postgresql.LAPSED),
        [[1, 2], 500, 3, 3, 3],
        {"t_lease", "engines_transactionrecord_pkey"},
    ),
    "find": ("SELECT * FROM engines_transactionrecord WHERE uid = %s", ["seed-7"], {"t_uid"}),
    "prefix": ("SELECT * FROM engines_transactionrecord WHERE uid LIKE %s", ["seed-77%"], {"t_uid"}),
    "waiting": (
        COUNT,
        [1],
        {"t_claim"},
    ),
    "due": (postgresql.DUE, [[1]], {"t_claim"}),
    "running": (
        RUNNING,
        [],
        {"t_lease"},
    ),
    "is any to rescue": (postgresql.IS_ANY.format(which=postgresql.IS_LAPSED), [], {"t_lease"}),
    "is any of a worker to rescue": (postgresql.IS_ANY.format(which=postgresql.OF_WORKER), [7], {"t_lease"}),
}


def seed(pipeline: Pipeline, rows: int) -> None:
    """A long history, fresh statistics, and then a burst that they do not know of."""
    with connection.cursor() as cursor:
        cursor.execute(SEED, [pipeline.pk, rows])
        cursor.execute("ANALYZE engines_transactionrecord")
    submit(pipeline, 2000)


def scans(statement: str, parameters: list[Any], *, is_tuned: bool = False) -> dict[str, str]:
    """How each table or index of the plan is read, by name."""
    with transaction.atomic(), connection.cursor() as cursor:
        if is_tuned:
            cursor.execute(postgresql.TUNED)
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
        found = cursor.fetchone()[0]
    read: dict[str, str] = {}
    for node in nodes(found):
        name = node.get("Index Name") or node.get("Relation Name")
        if name and "Scan" in node["Node Type"]:
            read[name] = node["Node Type"]
    return read


def nodes(found: Any) -> Iterator[dict[str, Any]]:
    """The parts of a plan."""
    plan = json.loads(found) if isinstance(found, str) else found
    rest = [plan[0]["Plan"]]
    while rest:
        node = rest.pop()
        yield node
        rest += node.get("Plans", [])


def check_plans(pipeline: Pipeline) -> None:
    queues = {
        f"queues, few: {is_few}": (
            *depth.question(depth.BY_PIPELINE, 0, depth.LAST_ID, is_few=is_few),
            {"t_claim"},
        )
        for is_few in (True, False)
    }
    for name, (statement, parameters, indexes) in (STATEMENTS | queues).items():
        ours = [pipeline.pk if parameter == 1 and "pipeline" in statement else parameter for parameter in parameters]
        read = scans(statement, ours, is_tuned=name == "due")
        assert "engines_transactionrecord" not in read or read["engines_transactionrecord"] == "Bitmap Heap Scan", name
        assert indexes <= set(read), f"{name}: {read}"
        assert ("t_age" in read) == ("t_age" in indexes), f"{name}: {read}"


@pytest.mark.postgresql
def test_hot_statements_use_their_indexes_on_a_long_history() -> None:
    pipeline = make_pipeline()
    seed(pipeline, 50_000)
    check_plans(pipeline)


@pytest.mark.postgresql
def test_hot_statements_use_their_indexes_after_a_burst_onto_a_table_without_statistics() -> None:
    pipeline = make_pipeline()
    with connection.cursor() as cursor:
        cursor.execute(BURST, [pipeline.pk, 50_000])
    check_plans(pipeline)


@pytest.mark.postgresql
@pytest.mark.parametrize("rows", [0, 500, 3000])
def test_a_plan_that_was_made_on_a_small_table_finds_each_row_by_its_key(rows: int) -> None:
    pipeline = make_pipeline()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE engines_transactionrecord CASCADE")
        cursor.execute(SEED, [pipeline.pk, rows])
        cursor.execute("ANALYZE engines_transactionrecord")
        cursor.execute(postgresql.TUNED)
        statement = postgresql.CLAIM.format(count=100, commit="", **postgresql.BY_PRIORITY)
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", [pipeline.pk, pipeline.pk, 1, 30.0])
        key = "engines_transactionrecord_pkey"
        (updated,) = [node for node in nodes(cursor.fetchone()[0]) if node.get("Index Name") == key]
        cursor.execute(f"EXPLAIN (FORMAT JSON) {postgresql.SETTLE}", STATEMENTS["settle"][1])
        (settled,) = [node for node in nodes(cursor.fetchone()[0]) if node.get("Index Name") == key]
    assert updated["Index Cond"].startswith("(id = ANY")
    assert settled["Index Cond"].startswith("(id = ANY")


@pytest.mark.postgresql
@pytest.mark.parametrize("order", [postgresql.BY_PRIORITY, postgresql.OLDEST_FIRST])
def test_a_claim_passes_by_those_that_are_due_later_without_looking_at_their_rows(order: dict[str, str]) -> None:
    pipeline = make_pipeline()
    with connection.cursor() as cursor:
        cursor.execute(DELAYED, [pipeline.pk, 100_000])
    submit(pipeline, 2000)
    parameters = [pipeline.pk, pipeline.pk, 1, 30.0]
    with connection.cursor() as cursor:
        # As the connections of workers are.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        statement = postgresql.CLAIM.format(count=100, commit="", **order)
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", parameters)
        (chosen,) = [node for node in nodes(cursor.fetchone()[0]) if node.get("Index Name") in ("t_claim", "t_age")]
    assert "available_at <= now()" in chosen["Index Cond"]
    assert (chosen["Actual Rows"], chosen.get("Rows Removed by Filter", 0)) == (100, 0)


@pytest.mark.parametrize(("order", "index"), [("BY_PRIORITY", "t_claim"), ("OLDEST_FIRST", "t_age")])
def test_a_claim_reads_its_index_in_order_and_sorts_nothing_on_an_empty_table_either(order: str, index: str) -> None:
    if connection.vendor == "sqlite":
        parameters: dict[str, str | int] = {"now": "2026", "until": "2026", "worker": 1, "pipeline": 1, "count": 100}
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {getattr(sqlite, order)}", parameters)
            plan = " / ".join(row[3] for row in cursor.fetchall())
        assert "TEMP B-TREE FOR ORDER BY" not in plan
        assert f"INDEX {index} (pipeline_id=?" in plan
    else:
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE engines_transactionrecord CASCADE")  # what was deleted before leaves its pages
        statement = postgresql.CLAIM.format(count=100, commit="", **getattr(postgresql, order))
        assert index in scans(statement, [1, 1, 1, 30.0])


@pytest.mark.soak
@pytest.mark.postgresql
def test_hot_statements_use_their_indexes_at_ten_million_rows() -> None:
    pipeline = make_pipeline()
    seed(pipeline, 10_000_000)
    check_plans(pipeline)
