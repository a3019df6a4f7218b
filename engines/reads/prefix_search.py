"""Finds rows by the start of an id, and by time, through indexes."""

from collections.abc import Iterable
from datetime import datetime

from django.db import connection
from django.db.models import Model, Q

MOST_ALIKE = 200
# In the order of the index, for which PostgreSQL has another word: the first few cost a few entries, however many.
BEGINNING = {
    "postgresql": 'SELECT id FROM "{table}" WHERE uid LIKE %s ORDER BY uid USING ~<~ LIMIT %s',
    "sqlite": "SELECT id FROM \"{table}\" WHERE uid LIKE %s ESCAPE '\\' ORDER BY uid LIMIT %s",
}
# Halves the numbers between the first and the last row until one is left: some twenty rows are looked at, not all.
MIDDLE = "(SELECT t.created_at FROM engines_transactionrecord t WHERE t.id >= (low + high) / 2 ORDER BY t.id LIMIT 1)"
HALVING = f"""
WITH RECURSIVE halves (low, high) AS (
  SELECT (SELECT min(id) FROM engines_transactionrecord), (SELECT max(id) FROM engines_transactionrecord) + 1
  UNION ALL
  SELECT CASE WHEN {MIDDLE} < %s THEN (low + high) / 2 + 1 ELSE low END,
         CASE WHEN {MIDDLE} < %s THEN high ELSE (low + high) / 2 END
  FROM halves WHERE low < high)
SELECT max(low) FROM halves
"""  # noqa: S608 (built from constants)


def beginning(model: type[Model], text: str) -> tuple[list[int], str]:
    """The keys of those whose id begins so, as many as a list of them can be of use; and a word if there are more."""
    statement = BEGINNING[connection.vendor].format(table=model._meta.db_table)  # noqa: SLF001 (Django's own way)
    with connection.cursor() as cursor:
        cursor.execute(statement, [f"{connection.ops.prep_for_like_query(text)}%", MOST_ALIKE + 1])
        keys = [row[0] for row in cursor.fetchall()]
    more = f"more than {MOST_ALIKE} ids start with this; type more characters to find the others"
    return keys[:MOST_ALIKE], more if len(keys) > MOST_ALIKE else ""


def first_since(moment: datetime) -> int:
    """The number of the first transaction made since then: rows are numbered in the order of their making."""
    since = connection.ops.adapt_datetimefield_value(moment)
    with connection.cursor() as cursor:
        cursor.execute(HALVING, [since, since])
        return cursor.fetchone()[0] or 0


def all_of(conditions: Iterable[Q]) -> Q:
    found = Q()
    for condition in conditions:
        found &= condition
    return found
