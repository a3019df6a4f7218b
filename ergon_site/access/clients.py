"""VERBS of API clients: create, amend, certify, rotate, disable, enable."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Greatest, Now
from django.utils import timezone
from django.utils.module_loading import import_string

from ergon_site.access import api_identity, audit, conf
from ergon_site.access.conf import setting
from ergon_site.access.core import scopes, terms, tokens
from ergon_site.access.core.tokens import Token
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.models import ApiClient, ApiToken

OVERLAP = timedelta(hours=1)
# How long a token lives unless somebody says otherwise.
LIFETIME = timedelta(days=90)
# The grants that are plain texts.
LISTS = ("zones", "target_zones", "consumers", "buckets")


class NameTakenError(Exception):
    """A client of that name exists."""


class ClientUnknownError(Exception):
    """There is no client of that name."""


class CertificateTakenError(Exception):
    """A certificate names one client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    scopes: Sequence[str] = ()
    zones: Sequence[str] = ()
    target_zones: Sequence[str] = ()
    consumers: Sequence[str] = ()
    buckets: Sequence[str] = ()
    tenants: Sequence[UUID] = ()
    rate: float | None = None

    def __post_init__(self) -> None:
        terms.check_rate(self.rate)
        for name in LISTS:
            terms.check_items(name, getattr(self, name))

    def columns(self) -> dict[str, Any]:
        at_boundary = any((self.zones, self.consumers, self.buckets))
        granted = list(scopes.grant(self.scopes, at_boundary=at_boundary))
        if not granted:
            msg = f"A client needs at least one scope; there are: {', '.join(scopes.SCOPES)}."
            raise terms.UnusableTermError(msg)
        lists = {name: list(getattr(self, name)) for name in LISTS}
        return {"scopes": granted, **lists, "tenants": [str(tenant) for tenant in self.tenants], "rate": self.rate}


def check_zones(names: Iterable[str]) -> None:
    """Refuse zones that nobody knows, where an app knows zones."""
    for find in chain(*conf.declared_by_apps("ergon_zones")):
        known = import_string(find)()
        for name in names:
            if name not in known:
                msg = f"There is no zone {name!r}; there are: {', '.join(known)}."
                raise terms.UnusableTermError(msg)


@dataclass(frozen=True, slots=True)
class Issued:
    """A client and the token just made for it, in the clear for this one time."""

    client: ApiClient
    token: Token


def create(
    name: str, grant: Grant, *, by: str, lifetime: timedelta | None = LIFETIME, certificate: str | None = None
) -> Issued:
    """Make a client with its first token, and accept its certificate if it has one, both for the lifetime.

    A lifetime of None has no end.
    """
    terms.check_name(name)
    columns = grant.columns() | _certificate(certificate, _end(lifetime))
    try:
        with transaction.atomic():
            client = ApiClient.objects.create(name=name, created_by=by, **columns)
            audit.record(actor=by, action="api_client.create", target=_target(client), after=_audited(columns))
            return Issued(client, _issue(client, lifetime))
    except IntegrityError:
        _refuse_taken(certificate)
        msg = f"An API client named {name!r} already exists; rotate its token, or choose another name."
        raise NameTakenError(msg) from None


@retry_conflicts
@transaction.atomic
def amend(client_id: int, changes: Mapping[str, Any], *, by: str) -> ApiClient:
    """Change some of what a client may do; the rest of its grant and its tokens stay."""
    client = _lock(client_id)
    before = grant_of(client)
    after = Grant(**{**before, **changes}).columns()
    for name, value in after.items():
        setattr(client, name, value)
    client.save(update_fields=list(after))
    _forget()
    audit.record(actor=by, action="api_client.amend", target=_target(client), before=before, after=after)
    return client


def certify(client_id: int, certificate: str | None, *, by: str, until: datetime | None = None) -> bool:
    """Accept another certificate of a client, or none; its tokens stay. False if it has been so before."""
    after = _certificate(certificate, until)
    try:
        with transaction.atomic():
            client = _lock(client_id)
            before = {name: getattr(client, name) for name in after}
            if before == after:
                return False
            ApiClient.objects.filter(pk=client_id).update(**after)
            _forget()
            changes: dict[str, Any] = {"before": _audited(before), "after": _audited(after)}
            audit.record(actor=by, action="api_client.certify", target=_target(client), **changes)
            return True
    except IntegrityError:
        _refuse_taken(certificate)
        raise


@retry_conflicts
@transaction.atomic
def rotate(client_id: int, *, by: str, overlap: timedelta = OVERLAP, lifetime: timedelta | None = LIFETIME) -> Issued:
    """Issue a new token; those before it stop working once the overlap is over."""
    terms.check_time("overlap", overlap)
    client = _lock(client_id)
    ends_at = timezone.now() + overlap
    lasting = Q(expires_at=None) | Q(expires_at__gt=ends_at)
    client.tokens.filter(_outlasts("expires_at"), lasting).update(expires_at=ends_at)
    token = _issue(client, lifetime)
    _forget()
    after = {"prefix": token.prefix, "earlier_tokens_end_at": ends_at.isoformat()}
    audit.record(actor=by, action="api_client.rotate", target=_target(client), after=after)
    return Issued(client, token)


def disable(client_id: int, *, by: str, reason: str = "") -> bool:
    """Refuse every token of a client until it is enabled again."""
    return _switch("disable", client_id, Now(), by=by, reason=reason)


def enable(client_id: int, *, by: str, reason: str = "") -> bool:
    """Accept a disabled client's tokens again."""
    return _switch("enable", client_id, None, by=by, reason=reason)


def find(name: str) -> ApiClient:
    client = ApiClient.objects.filter(name=name).first()
    if client is None:
        msg = f"There is no API client named {name!r}."
        raise ClientUnknownError(msg)
    return client


def expiring(within: timedelta) -> QuerySet[ApiClient]:
    """Enabled clients that nothing will let in by then, neither token nor certificate, though something does now."""
    living = ApiToken.objects.filter(_outlasts("expires_at"), client=OuterRef("pk"))
    lives, lasts = Q(Exists(living)), Q(Exists(living.filter(_outlasts("expires_at", within))))
    if setting("ERGON_CERTIFICATE_HEADER"):
        certified = Q(certificate__isnull=False)
        lives |= certified & _outlasts("certificate_expires_at")
        lasts |= certified & _outlasts("certificate_expires_at", within)
    return ApiClient.objects.filter(lives, ~lasts, disabled_at=None)


def grant_of(client: ApiClient) -> dict[str, Any]:
    """What a client may do, by the fields of a grant."""
    return {name: getattr(client, name) for name in Grant.__dataclass_fields__}


def with_last_use(rows: QuerySet[ApiClient]) -> QuerySet[ApiClient]:
    """Each with when it was last let in (`last_used_at`), by whichever token or by its certificate."""
    by_token = Max("tokens__last_used_at")
    both = Greatest(by_token, "certificate_used_at")
    # Either may be missing, and on SQLite the greatest of nothing and something is nothing.
    return rows.annotate(last_used_at=Coalesce(both, by_token, "certificate_used_at"))


def _issue(client: ApiClient, lifetime: timedelta | None) -> Token:
    token = tokens.mint(secrets.token_bytes(tokens.ENTROPY))
    ApiToken.objects.create(client=client, prefix=token.prefix, digest=token.digest, expires_at=_end(lifetime))
    return token


def _end(lifetime: timedelta | None) -> datetime | None:
    terms.check_time("lifetime", lifetime)
    return timezone.now() + lifetime if lifetime else None


def _certificate(told: str | None, until: datetime | None) -> dict[str, Any]:
    identity = terms.certificate_identity(told) if told else None
    return {"certificate": identity, "certificate_expires_at": until if identity else None}


def _refuse_taken(certificate: str | None) -> None:
    holder = (
        ApiClient.objects.filter(certificate=terms.certificate_identity(certificate)).first() if certificate else None
    )
    if holder is not None:
        msg = f"That certificate belongs to the API client {holder.name!r} already."
        raise CertificateTakenError(msg) from None


def _audited(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns as the audit log keeps them."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in columns.items()}


def _lock(client_id: int) -> ApiClient:
    return ApiClient.objects.select_for_update().get(pk=client_id)


def _outlasts(column: str, within: timedelta | None = None) -> Q:
    return Q(**{column: None}) | Q(**{f"{column}__gt": Now() + within if within else Now()})


@retry_conflicts
@transaction.atomic
def _switch(verb: str, client_id: int, disabled_at: Now | None, *, by: str, reason: str) -> bool:
    """Disable or enable a client; False if it has been so before."""
    others = ApiClient.objects.filter(pk=client_id, disabled_at__isnull=disabled_at is not None)
    if not others.update(disabled_at=disabled_at):
        return False
    _forget()
    client = ApiClient.objects.get(pk=client_id)
    states = {"before": {"disabled": disabled_at is None}, "after": {"disabled": disabled_at is not None}}
    audit.record(actor=by, action=f"api_client.{verb}", target=_target(client), reason=reason, **states)
    return True


def _forget() -> None:
    """In this process it counts at once, and again with the commit: until then others may have looked."""
    api_identity.forget()
    transaction.on_commit(api_identity.forget)


def _target(client: ApiClient) -> str:
    return f"API client {client.name}"
