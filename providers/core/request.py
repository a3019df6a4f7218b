"""A request: what it may hold, what makes it the same as another, and how its values are written down.

Payloads and answers come from everywhere: each value becomes one that JSON, or a column of the database, can hold.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from providers.core.errors import ProviderUsageError

NAME, KEY = 100, 200
LONGEST = {
    **dict.fromkeys(("tenant_id", "provider_name", "capability", "operation"), NAME),
    **dict.fromkeys(("correlation_id", "idempotency_key", "campaign_id"), KEY),
}
OPTIONAL = {"idempotency_key", "campaign_id"}
DEAREST = 10**15
# Seconds that a call may last at most.
LATEST = 30 * 86400.0
# Deeper than people nest, and far from where encoders and databases give up.
DEEPEST = 100
# Python refuses to write longer numbers in digits.
MOST_BITS = 10_000

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

Leaf = Callable[[Any], Any]


class Request(NamedTuple):
    tenant_id: str
    provider_name: str
    capability: str
    operation: str
    version: int
    payload: Mapping[str, Any]
    fields: Sequence[str] | None = None  # of the payload, that count; None is all of them

    @property
    def key(self) -> str:
        """A key for requests that come without one."""
        return self.digests()[0]

    @property
    def fingerprint(self) -> str:
        """A digest of the request, whoever asks: the same key with another fingerprint is another request."""
        return self.digests()[1]

    def digests(self) -> tuple[str, str]:
        """Key and fingerprint."""
        asked = [self.operation, self.version, canonical(self._counted())]
        return _digest([self.tenant_id, self.provider_name, self.capability, *asked]), _digest(asked)

    def key_within(self, task_id: str) -> str:
        """A key that only this task has for the request."""
        return _digest([self.key, task_id])

    def _counted(self) -> Mapping[str, Any]:
        if self.fields is None:
            return self.payload
        return {name: self.payload[name] for name in self.fields if name in self.payload}


def tenant_in(value: Any) -> Any:
    """A tenant as all tables name it: a UUID, however it is written, is one and the same."""
    return _tenant_in_text(value) if type(value) is str else str(value) if isinstance(value, UUID) else value


@lru_cache(maxsize=10_000)
def _tenant_in_text(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        return text


def refuse_deadline(deadline: Any, now: float) -> None:
    """A deadline is a time of the monotonic clock; one by the clock on the wall would never come."""
    if deadline is not None and not (isinstance(deadline, int | float) and deadline - now <= LATEST):
        msg = f"deadline must be time.monotonic() and some seconds, not {deadline!r}"
        raise ProviderUsageError(msg)


def refuse_mistakes(given: Mapping[str, Any]) -> None:
    """A missing tenant is refused, never defaulted; and so is a name that no column takes."""
    for name, value in given.items():
        if value is None and name in OPTIONAL:
            continue
        if not isinstance(value, str) or not value.strip():
            msg = f"{name} is missing: {value!r}"
            raise ProviderUsageError(msg)
        if name in {"tenant_id", "capability"} and value.startswith("*"):
            msg = f"{name} must not begin with a star, which means an account: {value!r}"
            raise ProviderUsageError(msg)
        if len(value) > LONGEST[name] or storable_text(value) != value:
            msg = f"{name} is longer than {LONGEST[name]} characters, or holds a U+0000 or half a surrogate pair"
            raise ProviderUsageError(msg)


def caller_in(transaction_id: str | None, correlation_id: str) -> str | None:
    """The transaction that a call is made for, if its correlation id does not say so and a column takes it."""
    if transaction_id is None or transaction_id == correlation_id or len(transaction_id) > KEY:
        return None
    return transaction_id if storable_text(transaction_id) == transaction_id else None


def refuse_payload(payload: Any) -> None:
    if not isinstance(payload, dict):
        msg = f"payload must be an object, not {type(payload).__name__}"
        raise ProviderUsageError(msg)


def refuse_cost(cost: Any) -> None:
    if type(cost) is not int or not 1 <= cost <= DEAREST:
        msg = f"cost must be a whole number from 1 to {DEAREST:,}, not {cost!r}"
        raise ProviderUsageError(msg)


def canonical(value: Any) -> str:
    """The canonical text of a payload: the same for all that mean the same."""
    return _canonical(walked(value, _plain, text_of))


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: others by their kind and text."""
    is_known = value is None or isinstance(value, str | int | float | bool)
    return value if is_known and not is_endless(value) else {type(value).__qualname__: text_of(value)}


def _digest(parts: Sequence[Any]) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def storable(value: Any) -> Any:
    """A value that every column of JSON takes; what JSON does not know becomes text."""
    return walked(value, _stored, _stored_text)


def storable_text(text: str) -> str:
    """A text that every column takes: no U+0000, no half of a surrogate pair."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def walked(value: Any, leaf: Leaf, key: Leaf, around: tuple[int, ...] = ()) -> Any:
    """The value with each leaf as `leaf` says it, and each name as `key` does. What has no end is a leaf somewhere."""
    if len(around) < DEEPEST and id(value) not in around:
        within = (*around, id(value))
        if isinstance(value, Mapping):
            return {key(name): walked(inner, leaf, key, within) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [walked(inner, leaf, key, within) for inner in value]
    return leaf(value)


def text_of(value: Any) -> str:
    """The text of a value, or the name of its class if that fails."""
    try:
        return hex(value) if is_endless(value) else str(value)
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return type(value).__qualname__


def is_endless(value: Any) -> bool:
    """Whether it is a number that is too long to be written in digits."""
    return isinstance(value, int) and value.bit_length() > MOST_BITS


def _stored(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    is_number = value is None or (isinstance(value, int) and not is_endless(value))
    return value if is_number else _stored_text(value)


def _stored_text(value: Any) -> str:
    return storable_text(text_of(value))
