"""VERBS: hold, let go. One process at a time hands over a boundary, or reads as a consumer for a pipeline."""

import os
import secrets
import socket
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

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


def let_go(row: Boundary | Consumer, holder: str) -> None:
    """Somebody else may have it at once."""
    rows = type(row)._default_manager.filter(pk=row.pk, held_by=holder)  # noqa: SLF001
    rows.update(held_by=None, held_until=None)
