"""Parses query strings and bodies, and checks the client's tenants."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import PermissionDenied, ValidationError

from ergon_site.access.api_identity import Caller
from ergon_site.access.core import scopes
from ergon_site.access.core.texts import LONGEST_REASON
from providers.calls import FORCED_FOR
from providers.core.errors import REASON_CODES
from providers.core.exchange import Outcome

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LONGEST = 200
LONGEST_TIME = 64
ACTIONS = ("reset", "force-open", "force-close")
OUTCOMES = [outcome.value for outcome in Outcome]
REASONS = list(REASON_CODES)

TENANT = OpenApiParameter("tenant_id", {"type": "string", "format": "uuid"}, required=True)
FOR_METRICS = [
    OpenApiParameter(
        "tenant_id", {"type": "string", "format": "uuid"}, description="Default: every tenant that the client may see."
    ),
    OpenApiParameter("provider", str, description="The provider's name."),
    OpenApiParameter("capability", str),
    OpenApiParameter("outcome", str, enum=OUTCOMES),
    OpenApiParameter("reason", str, enum=REASONS),
    OpenApiParameter("correlation_id", str),
    OpenApiParameter("created_after", datetime, description="At this time or later."),
    OpenApiParameter("created_before", datetime, description="Before this time."),
]


def sees_all(caller: Caller) -> bool:
    """Whether a client has a platform's eyes."""
    return scopes.allows(caller.scopes, "platform")


def tenant(caller: Caller, text: Any) -> str:
    """The tenant that is named, if this client may see it."""
    named = text.lower() if isinstance(text, str) else ""
    if not UUID.fullmatch(named):
        raise ValidationError({"tenant_id": "This must be the UUID of a tenant."})
    if named not in caller.tenants and not sees_all(caller):
        msg = "This client may not see that tenant."
        raise PermissionDenied(msg)
    return named


def metrics(caller: Caller, parameters: Mapping[str, str]) -> Q:
    """Which calls are asked for, of tenants that this client may see."""
    found = Q()
    if "tenant_id" in parameters:
        found = Q(tenant_id=tenant(caller, parameters["tenant_id"]))
    elif not sees_all(caller):
        found = Q(tenant_id__in=sorted(caller.tenants))
    for name, condition in FILTERS.items():
        if name in parameters:
            try:
                found &= condition(parameters[name])
            except ValueError as error:
                raise ValidationError({name: str(error)}) from None
    return found


def override(body: Any) -> dict[str, Any]:
    """A tenant, what is to be done, why, and for how many seconds; null is until it is reset."""
    if not isinstance(body, Mapping):
        msg = "This must be an object."
        raise ValidationError(msg)
    required, known = ("tenant_id", "action", "reason"), ("tenant_id", "action", "reason", "seconds")
    faults = {name: ["This field is required."] for name in required if name not in body}
    faults |= {str(name): ["There is no such field."] for name in list(body)[:20] if name not in known}
    if faults:
        raise ValidationError(faults)
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


def _text(text: str) -> str:
    if not 0 < len(text) <= LONGEST or "\x00" in text:
        msg = f"This must be a text of 1 to {LONGEST} characters."
        raise ValueError(msg)
    return text


def _one_of(words: list[str], word: str) -> str:
    if word not in words:
        msg = f"This must be one of {', '.join(words)}."
        raise ValueError(msg)
    return word


def _time(text: str) -> datetime:
    # In an address a plus sign is a space.
    for written in (text, text.replace(" ", "+")):
        try:
            time = parse_datetime(written) if len(written) <= LONGEST_TIME else None
            if time is not None and time.tzinfo is not None:
                return time.astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    msg = "This must be a time in ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z."
    raise ValueError(msg)


FILTERS: dict[str, Callable[[str], Q]] = {
    "provider": lambda text: Q(provider_name=_text(text)),
    "capability": lambda text: Q(capability=_text(text)),
    "outcome": lambda word: Q(outcome=_one_of(OUTCOMES, word)),
    "reason": lambda word: Q(reason_code=_one_of(REASONS, word)),
    "correlation_id": lambda text: Q(correlation_id=_text(text)),
    "created_after": lambda text: Q(created_at__gte=_time(text)),
    "created_before": lambda text: Q(created_at__lt=_time(text)),
}
