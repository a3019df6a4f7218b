"""What an append and a fetch cost when there is much already."""

import time

from benchmarks.facts.at_once import BATCH, FROM, NEXT, TO, draft
from benchmarks.facts.rounds import Figures

ROUNDS = 5
GROWN = """
WITH c AS (UPDATE facts_boundary SET next_offset = next_offset + %(count)s WHERE id = %(id)s
           RETURNING next_offset - %(count)s AS first)
INSERT INTO facts_fact (boundary_id, "offset", message_id, subject, predicate, correlation_id, content, digest)
SELECT %(id)s, c.first + n, 'grown-' || (c.first + n), 'work_order:WO-' || (c.first + n), 'was_released',
  'order:' || (c.first + n), %(content)s, repeat('0', 64) FROM c, generate_series(0, %(count)s - 1) AS n
"""


def measure(figures: Figures, sizes: list[int]) -> None:
    for size in sizes:
        print(f"  with {size:,} facts", flush=True)
        _grow_to(size)
        for _ in range(ROUNDS):
            figures.keep(f"{size:,} facts", _measured())


def _grow_to(size: int) -> None:
    from django.db import connection

    from facts.ledger import boundaries, prepare

    boundary = boundaries.find(FROM, TO)
    content = prepare(draft(0)).text
    while (missing := size - boundary.next_offset) > 0:
        with connection.cursor() as cursor:
            cursor.execute(GROWN, {"id": boundary.pk, "count": min(missing, 200_000), "content": content})
        boundary.refresh_from_db()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) facts_fact")


def _measured() -> dict[str, float]:
    from facts import ledger
    from facts.ledger import boundaries, reading

    started = time.perf_counter()
    for _ in range(100):
        ledger.append(draft(next(NEXT)))
    one = (time.perf_counter() - started) / 100
    started = time.perf_counter()
    ledger.append_many([draft(next(NEXT)) for _ in range(BATCH)])
    many = (time.perf_counter() - started) / BATCH
    boundary = boundaries.find(FROM, TO)
    started = time.perf_counter()
    reading.after(boundary, boundary.next_offset // 2, BATCH)
    return {"one": one * 1e6, "in a batch": many * 1e6, "fetch": (time.perf_counter() - started) * 1000}
