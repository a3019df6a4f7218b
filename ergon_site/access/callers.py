"""VERB: identify. Who presents a token; asked at every request, so it is one statement and no models.

What was found counts for a second: a client that comes often is looked up once a second and process. What this process
itself changes counts at once.
"""

import json
import time
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db import connection
from django.utils import timezone

from ergon_site.access.core import tokens
from ergon_site.access.models import ApiToken

USE_IS_NOTED_EVERY = timedelta(minutes=1)
REMEMBERED_FOR = 1.0
MOST_REMEMBERED = 1000

LOOK_UP = """
SELECT token.id, token.digest, token.last_used_at IS NULL OR token.last_used_at < %s, client.id, client.name,
       client.rate, client.scopes, client.zones, client.target_zones, client.consumers, client.buckets, client.tenants
  FROM access_apitoken token JOIN access_apiclient client ON client.id = token.client_id
 WHERE token.prefix = %s AND client.disabled_at IS NULL AND (token.expires_at IS NULL OR token.expires_at > %s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An API client as a request sees it: `request.auth` in every view of the API."""

    token_id: int
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
        """How the audit log names it."""
        return f"client:{self.name}"


def of(request: Any) -> Caller:
    """The client behind an API request."""
    caller: Caller = request.auth
    return caller


def identify(text: str) -> Caller | None:
    """The enabled client whose living token this is, or None."""
    key = sha256(text.encode()).digest()
    until, caller = _remembered.get(key, NOBODY)
    now = time.monotonic()
    if now < until:
        return caller
    caller = _find(text)
    if caller is not None:
        if len(_remembered) >= MOST_REMEMBERED:
            forget()
        _remembered[key] = (now + REMEMBERED_FOR, caller)
    return caller


def forget() -> None:
    """A client or a token has changed."""
    _remembered.clear()


NOBODY: tuple[float, Caller | None] = (0.0, None)
_remembered: dict[bytes, tuple[float, Caller]] = {}


def _find(text: str) -> Caller | None:
    presented = tokens.parse(text)
    if presented is None:
        return None
    row = _look_up(presented.prefix)
    if row is None or not presented.matches(row[1]):
        return None
    token_id, _, is_due, client_id, name, rate, *lists = row
    if is_due:
        ApiToken.objects.filter(pk=token_id).update(last_used_at=timezone.now())
    named = zip(("scopes", "zones", "target_zones", "consumers", "buckets", "tenants"), lists, strict=True)
    granted = {name: frozenset(json.loads(items)) for name, items in named}
    return Caller(token_id=token_id, client_id=client_id, name=name, rate=rate, **granted)


def _look_up(prefix: str) -> tuple[Any, ...] | None:
    now = timezone.now()
    times = [connection.ops.adapt_datetimefield_value(time) for time in (now - USE_IS_NOTED_EVERY, now)]
    with connection.cursor() as cursor:
        cursor.execute(LOOK_UP, [times[0], prefix, times[1]])
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row
