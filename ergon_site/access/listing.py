"""The list of the audit log: each is led by an index, so that the millionth page costs what the first one does."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q

from ergon_site.access.core.search_terms import moment
from ergon_site.access.keyset import KeysetQuery, ListingError
from ergon_site.access.models import AuditEntry

NEWEST = ("-at", "-id")
# Led by the first of these that is asked for; the others are looked for among what it finds.
LEADING = ("target", "actor", "action")
SPANS = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
SIDES = {"under": "at__gte", "over": "at__lt"}
MOST_ALIKE = 200
WINDOW = 20_000
# One step of the index from each action to the next: as many rows are looked at as there are actions.
ACTIONS = """
WITH RECURSIVE known (action) AS (
  SELECT min(action) FROM access_auditentry
  UNION ALL
  SELECT (SELECT min(entry.action) FROM access_auditentry entry WHERE entry.action > known.action)
  FROM known WHERE known.action IS NOT NULL)
SELECT action FROM known WHERE action IS NOT NULL
"""
# In the order of the index, for which PostgreSQL has another word: the first few cost a few entries, however many.
BEGINNING = {
    "postgresql": "SELECT id FROM access_auditentry WHERE {0} LIKE %s ORDER BY {0} USING ~<~ LIMIT %s",
    "sqlite": r"SELECT id FROM access_auditentry WHERE {0} LIKE %s ESCAPE '\' ORDER BY {0} LIMIT %s",
}


def actions() -> list[str]:
    """Every action that has been recorded, by name."""
    with connection.cursor() as cursor:
        cursor.execute(ACTIONS)
        return [action for (action,) in cursor.fetchall()]


def entries(asked: Mapping[str, str], now: datetime) -> KeysetQuery:
    """The keyset query of the audit log, newest first, without the columns before and after."""
    text = asked.get("q", "").strip()
    leads, rest, note = _search(text) if text else ([], Q(), "")
    leads += [Q(**{name: asked[name]}) for name in LEADING if name in asked]
    rows = AuditEntry.objects.defer("before", "after").filter(*leads[:1])
    if age := asked.get("age", ""):
        side, _, span = age.partition("-")
        if side not in SIDES or span not in SPANS:
            msg = f"there is no age {age!r}"
            raise ListingError(msg)
        rows = rows.filter(**{SIDES[side]: now - SPANS[span]})
    for name, lookup in (("after", "at__gte"), ("before", "at__lt")):
        if name in asked:
            try:
                rows = rows.filter(**{lookup: moment(asked[name], now)})
            except ValueError as error:
                raise ListingError(str(error)) from None
    for condition in leads[1:]:
        rest &= condition
    return KeysetQuery(rows=rows, order=NEWEST, rest=rest, window=WINDOW, note=note)


def _search(text: str) -> tuple[list[Q], Q, str]:
    """The conditions of a searched text: those that an index serves, or one that is scanned for; and a note.

    Few that begin so are all found; of many, those of exactly that name, or else the newest.
    """
    alike = [action for action in actions() if action.startswith(text)]
    of_actions = AuditEntry.objects.filter(action__in=alike).order_by("action").values_list("pk", flat=True)
    found = [_keys("actor", text), _keys("target", text), list(of_actions[: MOST_ALIKE + 1])]
    if all(len(keys) <= MOST_ALIKE for keys in found):
        return [Q(pk__in=[key for keys in found for key in keys])], Q(), ""
    more = f"more than {MOST_ALIKE} start with this"
    for name in LEADING:
        if AuditEntry.objects.filter(**{name: text}).exists():
            return [Q(**{name: text})], Q(), f"{more}: showing those with exactly this {name}"
    begins = Q(actor__startswith=text) | Q(target__startswith=text) | Q(action__in=alike)
    return [], begins, f"{more}: searching the newest first"


def _keys(column: str, text: str) -> list[int]:
    with connection.cursor() as cursor:
        beginning = f"{connection.ops.prep_for_like_query(text)}%"
        cursor.execute(BEGINNING[connection.vendor].format(column), [beginning, MOST_ALIKE + 1])
        return [key for (key,) in cursor.fetchall()]
