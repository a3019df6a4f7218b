"""Lists of dead letters, of their groups and of bulk operations."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet

from engines.models import BulkOperation, DeadLetter, DeadLetterGroup
from engines.reads import filters
from engines.reads.filters import beginning
from ergon_site.access.core.texts import is_key
from ergon_site.access.keyset import KeysetQuery

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
    return KeysetQuery(rows=_light().filter(*given[:1]), rest=Q(*given[1:]), is_counted=not text, note=note)


def list_groups(asked: Asked) -> KeysetQuery:
    """The keyset query of dead-letter groups, those seen last first."""
    given, text = filters.conditions(asked, filters.GROUPS), asked.get("q", "").strip()
    others = [given.pop("category")] if "category" in given else []
    if text:
        others.append(Q(error_type__icontains=text) | Q(message__icontains=text) | Q(source__icontains=text))
    leading, *following = given.values() or [Q()]
    rows = DeadLetterGroup.objects.filter(leading)
    return KeysetQuery(rows=rows, order=("-last_seen_at", "-id"), rest=Q(*following, *others))


def _light() -> QuerySet[Any]:
    return DeadLetter.objects.defer("payload", "traceback", "details")
