"""The list of the audit log: each is led by an index, so that the millionth page costs what the first one does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q

from ergon_site.access.keyset import KeysetQuery
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
    ("postgresql", "actor"): "SELECT id FROM access_auditentry WHERE actor LIKE %s ORDER BY actor USING ~<~ LIMIT %s",
    (
        "postgresql",
        "target",
    ): "SELECT id FROM access_auditentry WHERE target LIKE %s ORDER BY target USING ~<~ LIMIT %s",
    ("sqlite", "actor"): r"SELECT id FROM access_auditentry WHERE actor LIKE %s ESCAPE '\' ORDER BY actor LIMIT %s",
    ("sqlite", "target"): r"SELECT id FROM access_auditentry WHERE target LIKE %s ESCAPE '\' ORDER BY target LIMIT %s",
}


class ListingError(ValueError):
    """No list is filtered so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The conditions of a searched text: those that an index serves, or one that is scanned for; and a note."""

    leads: tuple[Q, ...] = ()
    rest: Q = field(default_factory=Q)
    note: str = ""


def actions() -> list[str]:
    """Every action that has been recorded, by name."""
    with connection.cursor() as cursor:
        cursor.execute(ACTIONS)
        return [action for (action,) in cursor.fetchall()]


def entries(asked: Mapping[str, str], now: datetime) -> KeysetQuery:
    """The keyset query of the audit log, newest first, without the columns before and after."""
    text = asked.get("q", "").strip()
    search = _search(text) if text else _Search()
    leads = [*search.leads, *(Q(**{name: asked[name]}) for name in LEADING if name in asked)]
    rows = AuditEntry.objects.defer("before", "after").filter(_age(asked.get("age", ""), now), *leads[:1])
    rest = search.rest
    for condition in leads[1:]:
        rest &= condition
    return KeysetQuery(rows=rows, order=NEWEST, rest=rest, window=WINDOW, note=search.note)


def _age(asked: str, now: datetime) -> Q:
    if not asked:
        return Q()
    side, _, span = asked.partition("-")
    if side not in SIDES or span not in SPANS:
        msg = f"there is no age {asked!r}"
        raise ListingError(msg)
    return Q(**{SIDES[side]: now - SPANS[span]})


def _search(text: str) -> _Search:
    """Few that begin so are all found; of many, those of exactly that name, or else the newest."""
    alike = [action for action in actions() if action.startswith(text)]
    found = [_keys("actor", text), _keys("target", text), _keys_of(alike)]
    if all(len(keys) <= MOST_ALIKE for keys in found):
        return _Search(leads=(Q(pk__in=[key for keys in found for key in keys]),))
    more = f"more than {MOST_ALIKE} start with this"
    for name in LEADING:
        if AuditEntry.objects.filter(**{name: text}).exists():
            return _Search(leads=(Q(**{name: text}),), note=f"{more}: showing those with exactly this {name}")
    begins = Q(actor__startswith=text) | Q(target__startswith=text) | Q(action__in=alike)
    return _Search(rest=begins, note=f"{more}: searching the newest first")


def _keys(column: str, text: str) -> list[int]:
    with connection.cursor() as cursor:
        beginning = f"{connection.ops.prep_for_like_query(text)}%"
        cursor.execute(BEGINNING[connection.vendor, column], [beginning, MOST_ALIKE + 1])
        return [key for (key,) in cursor.fetchall()]


def _keys_of(actions: list[str]) -> list[int]:
    rows = AuditEntry.objects.filter(action__in=actions).order_by("action")
    return list(rows.values_list("pk", flat=True)[: MOST_ALIKE + 1])
