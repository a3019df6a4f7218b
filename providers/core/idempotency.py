"""What makes two requests the same one: who asks which provider for what, over the fields that count."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

DEEPEST = 100


class Request(NamedTuple):
    """What is asked of a provider."""

    tenant_id: str
    provider_name: str
    capability: str
    operation: str
    version: int
    payload: Mapping[str, Any]
    fields: Sequence[str] | None = None  # of the payload, that count; None is all of them

    @property
    def fingerprint(self) -> str:
        """What is asked, whoever asks: the same key with another fingerprint is another request."""
        return _digest([self.operation, self.version, canonical(self._counted())])

    @property
    def key(self) -> str:
        """A key for requests that come without one."""
        who = [self.tenant_id, self.provider_name, self.capability, self.operation, self.version]
        return _digest([*who, canonical(self._counted())])

    def _counted(self) -> Mapping[str, Any]:
        if self.fields is None:
            return self.payload
        return {name: self.payload[name] for name in self.fields if name in self.payload}


def canonical(value: Any) -> str:
    """One text for all payloads that mean the same."""
    return json.dumps(_plain(value, DEEPEST), sort_keys=True, separators=(",", ":"))


def _plain(value: Any, depth: int) -> Any:
    """What JSON can hold, whatever was given: other values by their kind and text."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if depth and isinstance(value, Mapping):
        return {str(key): _plain(inner, depth - 1) for key, inner in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_plain(inner, depth - 1) for inner in value]
    return {type(value).__qualname__: str(value)}


def _digest(parts: Sequence[Any]) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
