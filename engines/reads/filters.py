"""Filters of lists: the words of a query string as conditions that indexes serve, for console, API and commands.

Ids are found by their start, and times by the number of the first row since then.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Model, Q

from engines.core.errors import EngineError, ExceptionType
from engines.core.states import CATEGORIES, GroupState, LetterState, State
from engines.models import BulkOperation, Pipeline
from engines.transactions.errors import PipelineUnknownError
from ergon_site.access import keyset, parameters
from ergon_site.access.database.clock import page_time
from ergon_site.access.parameters import Filters, address_time, one_of, short_text

AGE = re.compile(r"(under|over)-(\d{1,4})([mhd])")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
LARGEST_KEY = 2**63 - 1
STATES = [state.word for state in State]
CATEGORY_NAMES = [category.value for category in ExceptionType]
LETTER_STATES = [state.value for state in LetterState]
GROUP_STATES = [state.value for state in GroupState]
OPERATION_STATES = [state for state, _ in BulkOperation.STATES]
# Each of the three has its partial index; without them, the transactions of a quiet pipeline would be looked for
# among all the others.
INDEXED = Q(state=State.PENDING.value) | Q(lease_expires_at__isnull=False) | Q(finished_at__isnull=False)
MOST_ALIKE = 200
# In the order of the index, for which PostgreSQL has another word: the first few cost a few entries, however many.
BEGINNING = {
    "postgresql": 'SELECT id, uid, state FROM "{table}" WHERE uid LIKE %s ORDER BY uid USING ~<~ LIMIT %s',
    "sqlite": "SELECT id, uid, state FROM \"{table}\" WHERE uid LIKE %s ESCAPE '\\' ORDER BY uid LIMIT %s",
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


class ListingError(keyset.ListingError, EngineError):
    """A list that cannot be as asked; `field` is the filter that cannot."""

    code = "invalid_filter"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def conditions(asked: Mapping[str, str], known: Filters) -> dict[str, Q]:
    """The condition of each filter that is given, in the order of those that are known."""
    return parameters.conditions(asked, known, lambda name, why: ListingError(why, name))


def in_state(state: State) -> Q:
    """A state, with what its index is for: a plan has no other way to know."""
    hints = {State.PENDING: Q(), State.RUNNING: Q(lease_expires_at__isnull=False)}
    return Q(state=state.value) & hints.get(state, Q(finished_at__isnull=False))


def _pipeline(name: str) -> Q:
    pipeline = Pipeline.objects.only("pk").filter(name=short_text(name)).first()
    if pipeline is None:
        raise PipelineUnknownError(name)
    return Q(pipeline_id=pipeline.pk) & INDEXED


def _group(text: str) -> Q:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(LARGEST_KEY)) or int(text) > LARGEST_KEY:
        msg = "This must be the number of a group."
        raise ValueError(msg)
    return Q(group_id=int(text))


TRANSACTIONS: Filters = {
    "state": lambda word: in_state(State(STATES.index(one_of(STATES, word)))),
    "pipeline": _pipeline,
    "category": lambda word: Q(
        state=State.FAILED.value, category=CATEGORIES[ExceptionType(one_of(CATEGORY_NAMES, word))]
    ),
    "correlation_id": lambda text: Q(correlation_id=short_text(text)),
    "id": lambda text: Q(uid=short_text(text)),
    "created_after": lambda text: Q(created_at__gte=address_time(text)),
    "created_before": lambda text: Q(created_at__lt=address_time(text)),
}
# In the order of how much each narrows: the first that is given leads.
LETTERS: Filters = {
    "group": _group,
    "source": lambda text: Q(source=short_text(text)),
    "state": lambda word: Q(state=one_of(LETTER_STATES, word)),
    "category": lambda word: Q(category=one_of(CATEGORY_NAMES, word)),
}
GROUPS: Filters = {
    "source": LETTERS["source"],
    "state": lambda word: Q(state=one_of(GROUP_STATES, word)),
    "category": LETTERS["category"],
}
OPERATIONS: Filters = {"state": lambda word: Q(state=one_of(OPERATION_STATES, word)), "group": _group}


def age(text: str) -> tuple[str, datetime]:
    """A lookup and the time that it compares with: ("gte", …) is younger, ("lt", …) older."""
    found = AGE.fullmatch(text)
    if found is None:
        msg = f"an age looks like under-1h or over-7d, not {text!r}"
        raise ValueError(msg)
    way, count, unit = found.groups()
    return "gte" if way == "under" else "lt", page_time() - timedelta(**{UNITS[unit]: int(count)})


def beginning(model: type[Model], text: str) -> tuple[list[int], str]:
    """The keys of those whose id begins so, as many as a list of them can be of use; and a word if there are more."""
    keys = [key for key, *_ in first_alike(model, text, MOST_ALIKE + 1)]
    more = f"more than {MOST_ALIKE} ids start with this; type more characters to find the others"
    return keys[:MOST_ALIKE], more if len(keys) > MOST_ALIKE else ""


def first_alike(model: type[Model], text: str, most: int) -> list[tuple[int, str, Any]]:
    """Key, id and state of the first whose id begins so."""
    statement = BEGINNING[connection.vendor].format(table=model._meta.db_table)  # noqa: SLF001 (Django's own way)
    with connection.cursor() as cursor:
        cursor.execute(statement, [f"{connection.ops.prep_for_like_query(text)}%", most])
        return list(cursor.fetchall())


def first_since(moment: datetime) -> int:
    """The number of the first transaction made since then: rows are numbered in the order of their making."""
    since = connection.ops.adapt_datetimefield_value(moment)
    with connection.cursor() as cursor:
        cursor.execute(HALVING, [since, since])
        return cursor.fetchone()[0] or 0
