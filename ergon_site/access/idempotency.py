"""VERBS of requests that may come again: answer, forget_old.

A request is first noted as in flight, in a commit of its own. What it asks for is then done in one database transaction
with the keeping of its answer, and only whoever holds the note's token can keep one: a request that was taken for
crashed, and goes on after all, leaves nothing behind.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from ergon_site.access.conf import setting
from ergon_site.access.database import standbys
from ergon_site.access.database.calls import retry_conflicts, time_limit
from ergon_site.access.models import IdempotentRequest

CRASHED_AFTER = timedelta(seconds=60)
KEPT_FOR = timedelta(hours=24)
FORGOTTEN_AT_ONCE = 1000


class KeyReusedError(Exception):
    """The key has been used for something else."""

    code = "idempotency_key_reused"


class InFlightError(Exception):
    """The same request is being answered; try again after `retry_after` seconds."""

    code = "idempotency_in_flight"
    retry_after = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The client, the key and a digest of the request."""

    client_id: int
    key: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request; repeated if it is that of an earlier one."""

    status: int
    body: Any
    is_repeated: bool = False


def answer(asked: Asked, act: Callable[[], Answer]) -> Answer:
    """The answer of `act`, or the stored answer to the same request. A refusal leaves the key free."""
    token, limit = secrets.token_hex(16), setting("ERGON_DATABASE_TIMEOUT")
    with time_limit(limit):
        request = _begin(asked, token)
    if request.status is not None:
        return Answer(status=request.status, body=request.answer, is_repeated=True)
    mine = IdempotentRequest.objects.filter(pk=request.pk, token=token, status=None)
    try:
        with time_limit(limit):
            return _act_and_keep(mine, act)
    except BaseException:
        # If this fails too, the request stays in flight until it is taken for crashed.
        with suppress(DatabaseError):
            mine.delete()
        raise


def forget_old() -> int:
    """Drop requests whose time is over; how many."""
    old = IdempotentRequest.objects.filter(started_at__lt=Now() - KEPT_FOR).order_by("started_at")
    forgotten = 0
    while ids := list(old.values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE]):
        forgotten += IdempotentRequest.objects.filter(pk__in=ids).delete()[0]
    return forgotten


@retry_conflicts
@transaction.atomic(durable=True)
def _begin(asked: Asked, token: str) -> IdempotentRequest:
    """Note the request as in flight under this token, or find its answer."""
    note = IdempotentRequest(client_id=asked.client_id, key=asked.key, digest=asked.digest, token=token)
    IdempotentRequest.objects.bulk_create([note], ignore_conflicts=True)
    known = IdempotentRequest.objects.filter(client_id=asked.client_id, key=asked.key)
    request = known.first()
    if request is None:
        # The other one was refused just now.
        raise InFlightError
    if request.digest != asked.digest:
        raise KeyReusedError
    if request.status is None and request.token != token:
        # Its process may have crashed: then this one goes on for it.
        crashed = known.filter(token=request.token, status=None, started_at__lt=Now() - CRASHED_AFTER)
        if not crashed.update(token=token, started_at=Now()):
            raise InFlightError
    if request.status is not None:
        standbys.wait_as_writer()
    return request


@retry_conflicts
@transaction.atomic(durable=True)
def _act_and_keep(mine: QuerySet[IdempotentRequest], act: Callable[[], Answer]) -> Answer:
    made = act()
    if not mine.update(status=made.status, answer=made.body):
        # Somebody took it for crashed: what was just done is undone, and theirs counts.
        raise InFlightError
    return made
