"""Mistakes of the program: they are refused before anything is called or spent."""

from collections.abc import Mapping
from typing import Any

from providers.core.errors import ProviderUsageError
from providers.core.plain import storable_text

NAME, KEY = 100, 200
LONGEST = {
    **dict.fromkeys(("tenant_id", "provider_name", "capability", "operation"), NAME),
    **dict.fromkeys(("correlation_id", "idempotency_key", "campaign_id"), KEY),
}
OPTIONAL = {"idempotency_key", "campaign_id"}
DEAREST = 10**15


def refuse_mistakes(given: Mapping[str, Any]) -> None:
    """A missing tenant is refused, never defaulted; and so is a name that no column takes."""
    for name, value in given.items():
        if value is None and name in OPTIONAL:
            continue
        if not isinstance(value, str) or not value.strip():
            msg = f"{name} is missing: {value!r}"
            raise ProviderUsageError(msg)
        if len(value) > LONGEST[name] or storable_text(value) != value:
            msg = f"{name} is longer than {LONGEST[name]} characters, or holds a U+0000 or half a surrogate pair"
            raise ProviderUsageError(msg)


def refuse_payload(payload: Any) -> None:
    if not isinstance(payload, dict):
        msg = f"payload must be an object, not {type(payload).__name__}"
        raise ProviderUsageError(msg)


def refuse_cost(cost: Any) -> None:
    if type(cost) is not int or not 1 <= cost <= DEAREST:
        msg = f"cost must be a whole number from 1 to {DEAREST:,}, not {cost!r}"
        raise ProviderUsageError(msg)
