"""What claims and settlements cost with a history of so many finished transactions in the same table."""

import statistics
import time

from benchmarks.queue.contenders.ergon import Ergon
from benchmarks.queue.jobs import PADDING

BATCH, BATCHES = 100, 50
STEP = 100_000
# As if one had come in each millisecond, and ended well.
GROW = """
INSERT INTO engines_transactionrecord (uid, pipeline_id, state, priority, payload, metadata, fencing_token, attempts,
  rescues, available_at, created_at, started_at, finished_at)
SELECT uuidv7(at - now())::text, %s, 2, 0, jsonb_build_object('number', n, 'padding', %s::text), '{}', 1, 1, 0, at, at,
  at, at
FROM (SELECT n, now() - make_interval(secs => (%s - n) / 1000.0) AS at FROM generate_series(%s, %s) n) made
"""
QUEUE = Ergon()


def grow(size: int) -> None:
    from django.db import connection

    from engines import pipelines

    pipeline = pipelines.find(QUEUE.pipeline).pk
    with connection.cursor() as cursor:
        for first in range(0, size, STEP):
            cursor.execute(GROW, [pipeline, PADDING, size, first, min(first + STEP, size) - 1])
    QUEUE.settle_down()


def measure() -> dict[str, float]:
    """Submit, claim and settle some batches of a hundred: microseconds for each transaction, of the middle batch."""
    from engines import pipelines, transactions, workers
    from engines.core.outcome import Success

    pipeline, worker = pipelines.find(QUEUE.pipeline).pk, workers.enrol([QUEUE.pipeline]).pk
    QUEUE.submit_many(range(BATCH * BATCHES))
    claims, settles = [], []
    for _ in range(BATCHES):
        started = time.perf_counter()
        claimed = transactions.claim(pipeline, BATCH, worker)
        claims.append(time.perf_counter() - started)
        ends = [transactions.Settlement(one, Success(None)) for one in claimed]
        started = time.perf_counter()
        transactions.settle(ends, worker=worker)
        settles.append(time.perf_counter() - started)
    each = 1e6 / BATCH
    return {"claim": statistics.median(claims) * each, "settle": statistics.median(settles) * each}
