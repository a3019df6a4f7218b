"""What an append and a fetch cost when there is much already."""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from random import Random

from benchmarks.facts.at_once import BATCH, FROM, TO, draft
from benchmarks.facts.rounds import Figures

ROUNDS = 5
ONES, BATCHES = 100, 5
# Numbers of equal length, so that names stand in an index as their numbers do.
FIRST = 1_000_000_000
# A number that is this much longer stands anywhere between two that are there.
BETWEEN = 1_000_000
RANDOM = Random(1)  # noqa: S311 (the same in every run)
GROWN = """
WITH c AS (UPDATE facts_boundary SET next_offset = next_offset + %(count)s WHERE id = %(id)s
           RETURNING next_offset - %(count)s + %(first)s AS first)
INSERT INTO facts_fact (boundary_id, "offset", message_id, subject, predicate, correlation_id, content, digest)
SELECT %(id)s, c.first - %(first)s + n, 'order-' || (c.first + n) || '-released', 'work_order:WO-' || (c.first + n),
  'was_released', 'order:' || (c.first + n), %(content)s, repeat('0', 64)
FROM c, generate_series(0, %(count)s - 1) AS n
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
    values: dict[str, int | str] = {"id": boundary.pk, "first": FIRST, "content": prepare(draft(0)).text}
    while (missing := size - boundary.next_offset) > 0:
        with connection.cursor() as cursor:
            cursor.execute(GROWN, values | {"count": min(missing, 200_000)})
        boundary.refresh_from_db()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) facts_fact")


def _measured() -> dict[str, float]:
    from facts.ledger import boundaries, reading

    boundary = boundaries.find(FROM, TO)
    known = boundary.next_offset
    in_line = count(FIRST + known)
    anywhere = ((FIRST + RANDOM.randrange(known)) * BETWEEN + RANDOM.randrange(BETWEEN) for _ in count())
    fetched = _took(lambda: reading.after(boundary, known // 2, BATCH))
    return {
        "one": _one_by_one(in_line),
        "one, anywhere": _one_by_one(anywhere),
        "in a batch": _in_batches(in_line),
        "in a batch, anywhere": _in_batches(anywhere),
        "fetch": fetched * 1000,
    }


def _one_by_one(numbers: Iterator[int]) -> float:
    from facts import ledger

    drafts = _drafts(numbers, ONES)
    return _took(lambda: [ledger.append(each) for each in drafts]) / ONES * 1e6


def _in_batches(numbers: Iterator[int]) -> float:
    from facts import ledger

    batches = [_drafts(numbers, BATCH) for _ in range(BATCHES)]
    return _took(lambda: [ledger.append_many(each) for each in batches]) / (BATCHES * BATCH) * 1e6


def _drafts(numbers: Iterable[int], how_many: int) -> list[dict[str, object]]:
    return [draft(number) for number in islice(numbers, how_many)]


def _took(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
