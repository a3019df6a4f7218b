"""Lists of dead letters, of their groups and of bulk operations."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from engines.models import BulkOperation, DeadLetter, DeadLetterGroup
from engines.reads import filters
from engines.reads.filters import beginning
from ergon_site.access.core.search_terms import MOST_WORDS
from ergon_site.access.core.texts import is_key
from ergon_site.access.keyset import KeysetQuery

FOUND_AMONG = 2_000
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)

Asked = Mapping[str, str]


def letters(asked: Asked) -> QuerySet[DeadLetter]:
    """The dead letters in these filters, without what is long of them."""
    return _light().filter(*filters.conditions(asked, filters.LETTERS).values())


def groups(asked: Asked) -> QuerySet[DeadLetterGroup]:
    return DeadLetterGroup.objects.filter(*filters.conditions(asked, filters.GROUPS).values())


def operations(asked: Asked) -> QuerySet[BulkOperation]:
    return BulkOperation.objects.filter(*filters.conditions(asked, filters.OPERATIONS).values())


def list_letters(asked: Asked) -> KeysetQuery:
    """The keyset query of dead letters: there is an index for each filter, and the narrowest one leads."""
    if not is_key(asked.get("group", "0")):
        asked = {**asked, "group": "0"}
    text = asked.get("q", "").strip()
    keys, note = beginning(DeadLetter, text) if text else ([], "")
    given = [*([Q(pk__in=keys)] if text else []), *filters.conditions(asked, filters.LETTERS).values()]
    if "error" in asked:
        given = [*(given or [Q()]), _containing([asked["error"]], "error_type", "message")]
    return KeysetQuery(rows=_light().filter(*given[:1]), rest=Q(*given[1:]), is_counted=not text, note=note)


def list_groups(asked: Asked) -> KeysetQuery:
    """The keyset query of dead-letter groups, those seen last first."""
    given, text = filters.conditions(asked, filters.GROUPS), asked.get("q", "").strip()
    others = [given.pop("category")] if "category" in given else []
    if text:
        others.append(_containing(text.split(), "error_type", "message", "source"))
    if "error" in asked:
        others.append(_containing([asked["error"]], "error_type", "message"))
    leading, *following = given.values() or [Q()]
    rows = DeadLetterGroup.objects.filter(leading)
    return KeysetQuery(rows=rows, order=("-last_seen_at", "-id"), rest=Q(*following, *others))


def find_groups(text: str, most: int) -> QuerySet[DeadLetterGroup]:
    """Those seen last whose error or source contains the words, among the newest groups."""
    newest = DeadLetterGroup.objects.order_by("-last_seen_at", "-id")
    # As a bound, which ends the walk through the index; a plan might look for the text among all rows first.
    last = Subquery(newest.values("last_seen_at")[FOUND_AMONG : FOUND_AMONG + 1])
    among = newest.filter(last_seen_at__gte=Coalesce(last, EARLIEST))
    return among.filter(_containing(text.split(), "error_type", "message", "source"))[:most]


def _containing(words: Sequence[str], *columns: str) -> Q:
    """Each of the words in one of the columns."""
    found = Q()
    for word in words[:MOST_WORDS]:
        found &= Q(*(Q(**{f"{column}__icontains": word}) for column in columns), _connector=Q.OR)
    return found


def _light() -> QuerySet[Any]:
    return DeadLetter.objects.defer("payload", "traceback", "details")
