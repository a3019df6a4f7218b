"""VERBS: acknowledge and withdraw. An acknowledged attention item is folded away until it is worse, or for its time."""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from ergon_site.access import audit
from ergon_site.access.core import attention
from ergon_site.access.core.attention import Acknowledgement, Entry
from ergon_site.access.core.durations import span
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AcknowledgedItem

COLUMNS = ("key", "cause", "severity", "count", "is_capped", "until", "by", "reason")


class AcknowledgementError(ValueError):
    """An item cannot be acknowledged so."""

    field: str | None = None


class ItemUnknownError(AcknowledgementError):
    def __init__(self, key: str) -> None:
        super().__init__(f"nothing that needs attention has the key {key[:100]!r}")


class DurationError(AcknowledgementError):
    field = "hours"

    def __init__(self) -> None:
        super().__init__(
            f"an item is acknowledged for more than nothing and at most {span(attention.LONGEST.total_seconds())}"
        )


def acknowledge(entry: Entry | None, key: str, lasting: timedelta, *, by: str, reason: str) -> Acknowledgement:
    """Fold an entry away, as it is now. An earlier word on it is replaced; words whose time is over are removed."""
    if entry is None or entry.item.key != key:
        raise ItemUnknownError(key)
    if not timedelta() < lasting <= attention.LONGEST:
        raise DurationError
    return _keep(entry, lasting, by, reason)


@retry_conflicts
@transaction.atomic
def _keep(entry: Entry, lasting: timedelta, by: str, reason: str) -> Acknowledgement:
    now = database_time()
    AcknowledgedItem.objects.filter(until__lte=now).delete()
    seen: dict[str, Any] = {
        "cause": entry.item.cause,
        "severity": int(entry.severity),
        "count": entry.count,
        "is_capped": entry.is_capped,
    }
    until: datetime = now + lasting
    why: dict[str, Any] = {"until": until, "by": by, "reason": reason}
    AcknowledgedItem.objects.update_or_create(key=entry.item.key, defaults={**seen, **why, "at": now})
    after = {"title": entry.item.title, **seen, "until": until.isoformat()}
    audit.record(actor=by, action="attention.acknowledge", target=_target(entry.item.key), reason=reason, after=after)
    return Acknowledgement(key=entry.item.key, **seen, **why)


@retry_conflicts
@transaction.atomic
def withdraw(key: str, *, by: str, reason: str) -> None:
    """Show an item again."""
    if not is_storable(key) or not AcknowledgedItem.objects.filter(key=key).delete()[0]:
        raise ItemUnknownError(key)
    audit.record(actor=by, action="attention.withdraw", target=_target(key), reason=reason)


def _target(key: str) -> str:
    return f"attention item {key}"
