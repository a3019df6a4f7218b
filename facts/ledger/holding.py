"""VERBS: hold, keep, let go, note start, forget starts.

One process at a time hands over a boundary, or reads as a consumer for a pipeline.
"""

import os
import secrets
import socket
from collections.abc import Mapping
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts.models import Boundary, Consumer

TERM = timedelta(seconds=15)


def new_holder() -> str:
    """A name for this process, or a part of it, that nobody else has."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(4)}"


def hold(row: Boundary | Consumer, holder: str, *, term: timedelta = TERM) -> bool:
    """Take it, or keep it for another term; False if somebody else has it, and lives."""
    is_free = Q(held_by=holder) | Q(held_until__isnull=True) | Q(held_until__lt=Now())
    rows = type(row)._default_manager.filter(is_free, pk=row.pk)  # noqa: SLF001 (either model's)
    return bool(rows.update(held_by=holder, held_until=Now() + term))


def keep(row: Boundary | Consumer, holder: str, *, term: timedelta = TERM) -> bool:
    """Keep it for another term; False if it was not this holder's without interruption, by the database's own row."""
    rows = type(row)._default_manager.filter(pk=row.pk, held_by=holder)  # noqa: SLF001
    return bool(rows.update(held_until=Now() + term))


def keep_all(holders: Mapping[int, str], *, term: timedelta = TERM) -> bool:
    """Keep boundaries for another term, each for its holder; False if any is not this holder's any more."""
    rows = Boundary.objects.filter(pk__in=holders, held_by__in=holders.values())
    return rows.update(held_until=Now() + term) == len(holders)


def let_go(row: Boundary | Consumer, holder: str) -> None:
    """Release a consumer: another process may have it at once."""
    rows = type(row)._default_manager.filter(pk=row.pk, held_by=holder)  # noqa: SLF001
    rows.update(held_by=None, held_until=None)


@retry_conflicts
@short_transaction()
def note_start(consumer: Consumer, offset: int, starts: int) -> None:
    """Write down that a fact is begun for so many times now: what kills its process every time is known by that."""
    started = _started(consumer)
    started[str(offset)] = max(started.get(str(offset), 0), starts)
    Consumer.objects.filter(pk=consumer.pk).update(started=started)


@retry_conflicts
@short_transaction()
def forget_starts(consumer: Consumer, up_to: int) -> None:
    """Facts up to this offset have ended."""
    left = {offset: count for offset, count in _started(consumer).items() if int(offset) > up_to}
    Consumer.objects.filter(pk=consumer.pk).update(started=left or None)


def _started(consumer: Consumer) -> dict[str, int]:
    return dict(Consumer.objects.select_for_update().get(pk=consumer.pk).started or {})
