"""VERBS: identify, recognise. Who presents a token, or a certificate; asked at every request.

What was found counts for a second: a client that comes often is looked up once a second and process. What this process
itself changes counts at once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db.models import Q
from django.utils import timezone

from ergon_site.access.core import tokens
from ergon_site.access.models import ApiClient, ApiToken

USE_IS_NOTED_EVERY = timedelta(minutes=1)
REMEMBERED_FOR = 1.0
MOST_REMEMBERED = 1000

LISTS = ("scopes", "zones", "target_zones", "consumers", "buckets", "tenants")


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
    presented, now = tokens.parse(text), timezone.now()
    if presented is None:
        return None
    living = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), client__disabled_at=None)
    token = living.select_related("client").filter(prefix=presented.prefix).first()
    if token is None or not presented.matches(token.digest):
        return None
    if token.last_used_at is None or token.last_used_at < now - USE_IS_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return _caller(token.client, token.pk)


def _subject(identity: str) -> Caller | None:
    now = timezone.now()
    living = Q(certificate_expires_at=None) | Q(certificate_expires_at__gt=now)
    client = ApiClient.objects.filter(living, certificate=identity, disabled_at=None).first()
    if client is None:
        return None
    if client.certificate_used_at is None or client.certificate_used_at < now - USE_IS_NOTED_EVERY:
        ApiClient.objects.filter(pk=client.pk).update(certificate_used_at=now)
    return _caller(client)


def _caller(client: ApiClient, token_id: int | None = None) -> Caller:
    lists = {name: frozenset(getattr(client, name)) for name in LISTS}
    return Caller(token_id=token_id, client_id=client.pk, name=client.name, rate=client.rate, **lists)
