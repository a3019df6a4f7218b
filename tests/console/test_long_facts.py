"""Lists of facts and artifacts at length: every one is found by an index, and quickly."""

import statistics
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client

from ergon_site.access import keyset
from facts.models import Boundary, Fact, ForwardedFact
from facts.reads import lists
from tests.console.test_long_lists import LIMIT, NUMBERS, TIMES, asked, look, taken, unserved
from tests.facts.drafts import OFFICE, PLANT, make_boundary

pytestmark = pytest.mark.django_db

TABLES = ("facts_fact", "facts_forwardedfact", "facts_artifact", "facts_artifactreference")
QUERIES = {
    "all": "",
    "of a boundary": "?boundary={small}",
    "by message id": "?q=m-77",
    "by subject": "?q=order:77",
    "by a common subject": "?q=machine:7",
    "by correlation": "?q=c-7",
    "by nothing known": "?q=nothing",
    "by message id, filtered": "?message=m-78",
    "of a subject in a boundary": "?subject=machine:7&boundary={small}",
    "of a correlation in a boundary": "?correlation=c-7&boundary={big}",
}
ARTIFACTS = {
    "all": "",
    "orphans": "?kept=orphan",
    "of a bucket": "?bucket=b3",
    "orphans of a bucket": "?bucket=b3&kept=orphan",
    "by name": "?q=b3/k-13",
    "referenced": "?kept=referenced",
}
FACTS = """
INSERT INTO {table} (boundary_id, "offset", message_id, subject, predicate, correlation_id, causation_id, content,
  digest, written_at)
SELECT CASE WHEN n %% 100 = 0 THEN %(small)s ELSE %(big)s END, n, 'm-' || n,
  CASE WHEN n %% 4 = 0 THEN 'machine:' || (n %% 20 + 7) ELSE 'order:' || n END, 'was_seen',
  CASE WHEN n %% 2 = 0 THEN 'c-' || (n / 100) END, CASE WHEN n %% 2 = 0 THEN 'm-' || (n / 100) END,
  '{{"envelope":{{"from_zone":"a","message_id":"m","produced_at_unix_ms":1,"to_zone":"b"}},'
  || '"fact":{{"object_json":"{text}","predicate":"was_seen","subject":"a:b"}}}}', 'd', CURRENT_TIMESTAMP
FROM ({numbers}) numbered
"""
ARTIFACT = """
INSERT INTO facts_artifact (bucket, key, digest, size, media_type, stored_as, created_by, created_at, is_referenced)
SELECT 'b' || (n %% 10), 'k-' || n, 'sha256:d', n, '', 's-' || n, '', CURRENT_TIMESTAMP, n %% 50 <> 0
FROM ({numbers}) numbered
"""
REFERENCE = """
INSERT INTO facts_artifactreference (artifact_id, boundary_id, "offset")
SELECT (SELECT min(id) FROM facts_artifact), %(big)s, n FROM ({numbers}) numbered
"""


def seed(rows: int) -> dict[str, int]:
    known = {"small": make_boundary().pk, "big": make_boundary(OFFICE, PLANT).pk}
    numbers, given = NUMBERS[connection.vendor], {"rows": rows, **known}
    with connection.cursor() as cursor:
        for table in TABLES[:2]:
            cursor.execute(FACTS.format(table=table, text="x" * 300, numbers=numbers) % given)
        cursor.execute(ARTIFACT.format(numbers=numbers) % given)
        cursor.execute(REFERENCE.format(numbers=numbers) % given)
        cursor.execute("ANALYZE")
    Boundary.objects.update(next_offset=rows + 1)
    return known


def addresses(known: dict[str, int], rows: int) -> Iterator[tuple[str, str]]:
    for buffer in ("fact", "forwardedfact"):
        for name, query in QUERIES.items():
            yield f"{buffer}s, {name}", f"/admin/facts/{buffer}/{query.format(**known)}"
        yield f"a {buffer}", f"/admin/facts/{buffer}/{known['big']}-{rows - 2}/change/"
        yield f"a {buffer} with many children", f"/admin/facts/{buffer}/{known['big']}-7/change/"
    for name, query in ARTIFACTS.items():
        yield f"artifacts, {name}", f"/admin/facts/artifact/{query}"
    key = connection.cursor().execute("SELECT min(id) FROM facts_artifact").fetchone()[0]
    yield "an artifact with many references", f"/admin/facts/artifact/{key}/change/"
    yield "boundaries", "/admin/facts/boundary/"


def test_every_list_of_facts_and_artifacts_is_found_by_an_index(browse: Client) -> None:
    rows = 20_000 if connection.vendor == "postgresql" else 2_000
    known = seed(rows)
    assert unserved(browse, [address for _, address in addresses(known, rows)], *TABLES) == []


@pytest.mark.parametrize("buffer", [Fact, ForwardedFact])
@pytest.mark.parametrize("query", [{}, {"boundary": "{small}"}, {"correlation": "c-7"}, {"subject": "machine:7"}])
def test_paging_shows_every_fact_once_and_in_order(buffer: lists.Buffer, query: dict[str, str]) -> None:
    known = seed(1_000)
    keyset_query = lists.facts(
        buffer, {name: value.format(**known) for name, value in query.items()}, list(Boundary.objects.all())
    )
    pages, at = [], ""
    while True:
        page = keyset.paginate(keyset_query, size=17, at=at)
        pages.append(page)
        if not (at := page.next):
            break
    shown = [(row.boundary_id, row.offset) for page in pages for row in page.rows]
    assert shown == list(keyset_query.all().values_list("boundary_id", "offset"))
    assert len(set(shown)) == len(shown)


@pytest.mark.soak
def test_every_list_of_a_million_facts_answers_quickly(browse: Client) -> None:
    rows = 1_000_000
    known, slow = seed(rows), {}
    told = dict(addresses(known, rows)) | {"dashboard": "/admin/"}
    for name, address in list(told.items()):
        if further := look(browse, address).further:
            told[f"{name}, next page"] = further
    for name, address in told.items():
        times = sorted(taken(browse, address) for _ in range(TIMES[connection.vendor]))
        p95 = times[round(len(times) * 0.95) - 1]
        spent = asked(browse, address)
        print(
            f"{name}: median {statistics.median(times):.3f} s, p95 {p95:.3f} s, of which in the database {spent:.3f} s"
        )
        slow.update({name: p95} if p95 > LIMIT[connection.vendor] else {})
    assert slow == {}
