"""VERBS of API clients: create, amend, rotate, disable, enable."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from ergon_site.access import audit, callers
from ergon_site.access.core import scopes, tokens
from ergon_site.access.core.tokens import Token
from ergon_site.access.models import ApiClient, ApiToken

OVERLAP = timedelta(hours=1)


class NameTakenError(Exception):
    """A client of that name exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a client may do."""

    scopes: Sequence[str] = ()
    zones: Sequence[str] = ()
    target_zones: Sequence[str] = ()
    consumers: Sequence[str] = ()
    buckets: Sequence[str] = ()
    tenants: Sequence[UUID] = ()
    rate: float | None = None

    def columns(self) -> dict[str, Any]:
        at_boundary = any((self.zones, self.consumers, self.buckets))
        return {
            "scopes": list(scopes.grant(self.scopes, at_boundary=at_boundary)),
            "zones": list(self.zones),
            "target_zones": list(self.target_zones),
            "consumers": list(self.consumers),
            "buckets": list(self.buckets),
            "tenants": [str(tenant) for tenant in self.tenants],
            "rate": self.rate,
        }


@dataclass(frozen=True, slots=True)
class Issued:
    """A client and the token just made for it, in the clear for this one time."""

    client: ApiClient
    token: Token


def create(name: str, grant: Grant, *, by: str, lifetime: timedelta | None = None) -> Issued:
    """Make a client with its first token."""
    columns = grant.columns()
    try:
        with transaction.atomic():
            client = ApiClient.objects.create(name=name, created_by=by, **columns)
            audit.record(actor=by, action="api_client.create", target=_target(client), after=columns)
            return Issued(client, _issue(client, lifetime))
    except IntegrityError:
        msg = f"An API client named {name!r} exists already; rotate its token instead, or choose another name."
        raise NameTakenError(msg) from None


@transaction.atomic
def amend(client_id: int, grant: Grant, *, by: str) -> ApiClient:
    """Change what a client may do; its tokens stay."""
    client = _lock(client_id)
    after = grant.columns()
    before = {name: getattr(client, name) for name in after}
    for name, value in after.items():
        setattr(client, name, value)
    client.save(update_fields=list(after))
    _forget()
    audit.record(actor=by, action="api_client.amend", target=_target(client), before=before, after=after)
    return client


@transaction.atomic
def rotate(client_id: int, *, by: str, overlap: timedelta = OVERLAP, lifetime: timedelta | None = None) -> Issued:
    """Issue a new token; those before it stop working once the overlap is over."""
    client = _lock(client_id)
    ends_at = timezone.now() + overlap
    client.tokens.filter(_lives() & (Q(expires_at=None) | Q(expires_at__gt=ends_at))).update(expires_at=ends_at)
    token = _issue(client, lifetime)
    _forget()
    audit.record(
        actor=by,
        action="api_client.rotate",
        target=_target(client),
        after={"prefix": token.prefix, "earlier_tokens_end_at": ends_at.isoformat()},
    )
    return Issued(client, token)


@transaction.atomic
def disable(client_id: int, *, by: str, reason: str = "") -> bool:
    """Refuse every token of a client until it is enabled again."""
    changed = ApiClient.objects.filter(pk=client_id, disabled_at=None).update(disabled_at=Now())
    return _note_switch(client_id, "api_client.disable", by=by, reason=reason) if changed else False


@transaction.atomic
def enable(client_id: int, *, by: str, reason: str = "") -> bool:
    """Accept a disabled client's tokens again."""
    changed = ApiClient.objects.filter(pk=client_id).exclude(disabled_at=None).update(disabled_at=None)
    return _note_switch(client_id, "api_client.enable", by=by, reason=reason) if changed else False


def expiring(within: timedelta) -> QuerySet[ApiClient]:
    """Enabled clients that will have no living token by then, though they have one now."""
    living = ApiToken.objects.filter(_lives(), client=OuterRef("pk"))
    lasting = living.filter(Q(expires_at=None) | Q(expires_at__gt=Now() + within))
    return ApiClient.objects.filter(Exists(living), ~Exists(lasting), disabled_at=None)


def _issue(client: ApiClient, lifetime: timedelta | None) -> Token:
    token = tokens.mint(secrets.token_bytes(tokens.ENTROPY))
    expires_at = timezone.now() + lifetime if lifetime else None
    ApiToken.objects.create(client=client, prefix=token.prefix, digest=token.digest, expires_at=expires_at)
    return token


def _lock(client_id: int) -> ApiClient:
    return ApiClient.objects.select_for_update().get(pk=client_id)


def _lives() -> Q:
    return Q(expires_at=None) | Q(expires_at__gt=Now())


def _note_switch(client_id: int, action: str, *, by: str, reason: str) -> bool:
    client = ApiClient.objects.get(pk=client_id)
    _forget()
    audit.record(actor=by, action=action, target=_target(client), reason=reason)
    return True


def _forget() -> None:
    """In this process it counts at once, and again with the commit: until then others may have looked."""
    callers.forget()
    transaction.on_commit(callers.forget)


def _target(client: ApiClient) -> str:
    return f"API client {client.name}"
