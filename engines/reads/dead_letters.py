"""Lists of dead letters and of their groups."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Q, QuerySet

from engines.core.errors import ExceptionType
from engines.core.states import GroupState, LetterState
from engines.models import DeadLetter, DeadLetterGroup
from engines.reads.filters import ListingError
from engines.reads.prefix_search import all_of, beginning
from ergon_site.access.core.texts import is_key
from ergon_site.access.keyset import KeysetQuery

NEWEST = ("-id",)


def list_letters(asked: Mapping[str, str]) -> KeysetQuery:
    """The keyset query of dead letters: there is an index for each filter, and the narrowest one leads."""
    _check(asked, {"state": LetterState, "category": ExceptionType})
    text = asked.get("q", "").strip()
    keys, note = beginning(DeadLetter, text) if text else ([], "")
    conditions = {
        **({"text": Q(pk__in=keys)} if text else {}),
        **({"group": Q(group_id=_number(asked["group"]))} if "group" in asked else {}),
        **{name: Q(**{name: asked[name]}) for name in ("source", "state", "category") if name in asked},
    }
    rows = DeadLetter.objects.defer("payload", "traceback", "details")
    return replace(_led(rows, conditions, NEWEST), note=note)


def list_groups(asked: Mapping[str, str]) -> KeysetQuery:
    """The keyset query of dead-letter groups, those seen last first."""
    _check(asked, {"state": GroupState, "category": ExceptionType})
    conditions = {name: Q(**{name: asked[name]}) for name in ("source", "state") if name in asked}
    text, others = asked.get("q", "").strip(), Q()
    if text:
        others = Q(error_type__icontains=text) | Q(message__icontains=text) | Q(source__icontains=text)
    if "category" in asked:
        others &= Q(category=asked["category"])
    keyset_query = _led(DeadLetterGroup.objects.all(), conditions, ("-last_seen_at", "-id"))
    return replace(keyset_query, rest=keyset_query.rest & others)


def _led(rows: QuerySet[Any], conditions: dict[str, Q], order: tuple[str, ...]) -> KeysetQuery:
    """A keyset query whose first condition is an index's own."""
    given = list(conditions.values())
    return KeysetQuery(
        rows=rows.filter(*given[:1]), order=order, rest=all_of(given[1:]), is_counted="text" not in conditions
    )


def _check(asked: Mapping[str, str], kinds: Mapping[str, Any]) -> None:
    for name, kind in kinds.items():
        if name in asked and asked[name] not in set(kind):
            msg = f"unknown filter: {name} {asked[name]!r}"
            raise ListingError(msg)


def _number(text: str) -> int:
    return int(text) if is_key(text) else 0
