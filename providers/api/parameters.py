"""Parses query strings and bodies, and checks the client's tenants."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import PermissionDenied, ValidationError

from ergon_site.access.api.bodies import object_fields
from ergon_site.access.api_identity import Caller
from ergon_site.access.core.texts import LONGEST_REASON
from ergon_site.access.parameters import Filters, address_time, conditions, one_of, short_text
from providers.calls import FORCED_FOR
from providers.core.errors import REASON_CODES
from providers.core.events import EventKind
from providers.core.exchange import Outcome, Source, Who

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ACTIONS = ("reset", "force-open", "force-close")
OUTCOMES = [outcome.value for outcome in Outcome]
REASONS = list(REASON_CODES)
KINDS = [kind.value for kind in EventKind]
SOURCES = [source.value for source in Source]

TENANT = OpenApiParameter("tenant_id", {"type": "string", "format": "uuid"}, required=True)
FOR_BOTH = [
    OpenApiParameter(
        "tenant_id", {"type": "string", "format": "uuid"}, description="Default: every tenant that the client may see."
    ),
    OpenApiParameter("provider", str, description="The provider's name."),
    OpenApiParameter("capability", str),
]
FOR_METRICS = [
    *FOR_BOTH,
    OpenApiParameter("outcome", str, enum=OUTCOMES),
    OpenApiParameter("reason", str, enum=REASONS),
    OpenApiParameter("source", str, enum=SOURCES),
    OpenApiParameter("correlation_id", str),
    OpenApiParameter("created_after", datetime, description="At this time or later."),
    OpenApiParameter("created_before", datetime, description="Before this time."),
]
FOR_EVENTS = [
    *FOR_BOTH,
    OpenApiParameter("kind", str, enum=KINDS),
    OpenApiParameter("after", datetime, description="At this time or later."),
    OpenApiParameter("before", datetime, description="Before this time."),
]


def tenant(caller: Caller, text: Any) -> str:
    """The tenant that is named, if this client may see it."""
    named = text.lower() if isinstance(text, str) else ""
    if not UUID.fullmatch(named):
        raise ValidationError({"tenant_id": "This must be the UUID of a tenant."})
    if named not in caller.tenants and "platform" not in caller.scopes:
        msg = "This client may not see that tenant."
        raise PermissionDenied(msg)
    return named


def who(caller: Caller, tenant_id: Any, provider_name: str, capability: str) -> Who:
    """The capability that is named; or, for a client of the platform, all that share an account."""
    named = Who(tenant_id, provider_name, capability) if isinstance(tenant_id, str) else None
    if named is not None and named.is_account:
        if "platform" not in caller.scopes:
            msg = "This client may not change what all tenants share."
            raise PermissionDenied(msg)
        return named
    return Who(tenant(caller, tenant_id), provider_name, capability)


def metrics(caller: Caller, parameters: Mapping[str, str]) -> Q:
    """Which calls are asked for, of tenants that this client may see."""
    return _filtered(caller, parameters, FILTERS)


def events(caller: Caller, parameters: Mapping[str, str]) -> Q:
    """Which events are asked for, likewise."""
    return _filtered(caller, parameters, EVENT_FILTERS)


def _filtered(caller: Caller, parameters: Mapping[str, str], filters: Filters) -> Q:
    found = Q()
    if "tenant_id" in parameters:
        found = Q(tenant_id=tenant(caller, parameters["tenant_id"]))
    elif "platform" not in caller.scopes:
        found = Q(tenant_id__in=sorted(caller.tenants))
    given = conditions(parameters, filters, lambda name, why: ValidationError({name: why}))
    return Q(found, *given.values())


def override(body: Any) -> dict[str, Any]:
    """A tenant, what is to be done, why, and for how many seconds; null is until it is reset."""
    body = object_fields(body, required=("tenant_id", "action", "reason"), optional=("seconds",))
    if body["action"] not in ACTIONS:
        raise ValidationError({"action": f"This must be one of {', '.join(ACTIONS)}."})
    reason = body["reason"]
    if not isinstance(reason, str) or not reason.strip() or len(reason) > LONGEST_REASON:
        raise ValidationError({"reason": f"This must be a text of 1 to {LONGEST_REASON:,} characters."})
    lasting, seconds = FORCED_FOR if "seconds" not in body else None, body.get("seconds")
    if seconds is not None:
        if body["action"] == "reset":
            raise ValidationError({"seconds": "A reset has no duration."})
        number: Any = None if isinstance(seconds, bool) else seconds  # to Python a truth is a number
        try:
            lasting = timedelta(seconds=number)
        except (TypeError, ValueError, OverflowError):
            raise ValidationError({"seconds": "This must be a number of seconds above 0."}) from None
    return {**body, "lasting": lasting}


NAMES: Filters = {
    "provider": lambda text: Q(provider_name=short_text(text)),
    "capability": lambda text: Q(capability=short_text(text)),
}
FILTERS: Filters = {
    **NAMES,
    "outcome": lambda word: Q(outcome=one_of(OUTCOMES, word)),
    "reason": lambda word: Q(reason_code=one_of(REASONS, word)),
    "source": lambda word: Q(source=one_of(SOURCES, word)),
    "correlation_id": lambda text: Q(correlation_id=short_text(text)),
    "created_after": lambda text: Q(created_at__gte=address_time(text)),
    "created_before": lambda text: Q(created_at__lt=address_time(text)),
}
EVENT_FILTERS: Filters = {
    **NAMES,
    "kind": lambda word: Q(kind=one_of(KINDS, word)),
    "after": lambda text: Q(at__gte=address_time(text)),
    "before": lambda text: Q(at__lt=address_time(text)),
}
