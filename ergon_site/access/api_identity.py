"""VERBS: identify, recognise. Who presents a token, or a certificate; asked at every request, so it is one statement
and no models.

What was found counts for a second: a client that comes often is looked up once a second and process. What this process
itself changes counts at once.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.db import connection
from django.utils import timezone

from ergon_site.access.core import tokens
from ergon_site.access.models import ApiClient, ApiToken

USE_IS_NOTED_EVERY = timedelta(minutes=1)
REMEMBERED_FOR = 1.0
MOST_REMEMBERED = 1000

LISTS = ("scopes", "zones", "target_zones", "consumers", "buckets", "tenants")
HOLDER = """
SELECT token.id, token.digest, token.last_used_at IS NULL OR token.last_used_at < %s, client.id, client.name,
       client.rate, client.scopes, client.zones, client.target_zones, client.consumers, client.buckets, client.tenants
  FROM access_apitoken token JOIN access_apiclient client ON client.id = token.client_id
 WHERE token.prefix = %s AND client.disabled_at IS NULL AND (token.expires_at IS NULL OR token.expires_at > %s)
"""
SUBJECT = """
SELECT certificate_used_at IS NULL OR certificate_used_at < %s, id, name,
       rate, scopes, zones, target_zones, consumers, buckets, tenants
  FROM access_apiclient
 WHERE certificate = %s AND disabled_at IS NULL
   AND (certificate_expires_at IS NULL OR certificate_expires_at > %s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An API client as a request sees it: `request.auth` in every view of the API."""

    # None for whoever came with a certificate.
    token_id: int | None
    client_id: int
    name: str
    rate: float | None
    scopes: frozenset[str]
    zones: frozenset[str]
    target_zones: frozenset[str]
    consumers: frozenset[str]
    buckets: frozenset[str]
    tenants: frozenset[str]

    # The framework asks this of whoever made a request.
    is_authenticated = True

    @property
    def actor(self) -> str:
        """The client's name in the audit log."""
        return f"client:{self.name}"


def caller_of(request: Any) -> Caller:
    caller: Caller = request.auth
    return caller


def identify(text: str) -> Caller | None:
    """The enabled client whose living token this is, or None."""
    return _known(b"token:", text, _holder)


def recognise(identity: str) -> Caller | None:
    """The enabled client whose certificate this is, or None. Only for what a trusted proxy has told."""
    return _known(b"certificate:", identity, _subject)


def forget() -> None:
    """A client or a token has changed."""
    _remembered.clear()


NOBODY: tuple[float, Caller | None] = (0.0, None)
_remembered: dict[bytes, tuple[float, Caller]] = {}


def _known(kind: bytes, text: str, find: Callable[[str], Caller | None]) -> Caller | None:
    # Of its kind: a certificate's identity is no secret, and must not pass for a token.
    key = sha256(kind + text.encode()).digest()
    until, caller = _remembered.get(key, NOBODY)
    now = time.monotonic()
    if now < until:
        return caller
    caller = find(text)
    if caller is not None:
        if len(_remembered) >= MOST_REMEMBERED:
            forget()
        _remembered[key] = (now + REMEMBERED_FOR, caller)
    return caller


def _holder(text: str) -> Caller | None:
    presented = tokens.parse(text)
    if presented is None:
        return None
    now = timezone.now()
    row = _look_up(HOLDER, presented.prefix, now)
    if row is None or not presented.matches(row[1]):
        return None
    token_id, _, is_due, *granted = row
    if is_due:
        ApiToken.objects.filter(pk=token_id).update(last_used_at=now)
    return _caller(token_id, granted)


def _subject(identity: str) -> Caller | None:
    now = timezone.now()
    row = _look_up(SUBJECT, identity, now)
    if row is None:
        return None
    is_due, *granted = row
    if is_due:
        ApiClient.objects.filter(certificate=identity).update(certificate_used_at=now)
    return _caller(None, granted)


def _look_up(statement: str, key: str, now: datetime) -> tuple[Any, ...] | None:
    times = [connection.ops.adapt_datetimefield_value(time) for time in (now - USE_IS_NOTED_EVERY, now)]
    with connection.cursor() as cursor:
        cursor.execute(statement, [times[0], key, times[1]])
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row


def _caller(token_id: int | None, granted: Sequence[Any]) -> Caller:
    client_id, name, rate, *lists = granted
    named = {name: frozenset(json.loads(items)) for name, items in zip(LISTS, lists, strict=True)}
    return Caller(token_id=token_id, client_id=client_id, name=name, rate=rate, **named)
