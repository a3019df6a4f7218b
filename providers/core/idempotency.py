"""The identity of a request: tenant, provider, operation, and the fields that count."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from providers.core.plain import is_endless, text_of, walked


class Request(NamedTuple):
    """A request to a provider."""

    tenant_id: str
    provider_name: str
    capability: str
    operation: str
    version: int
    payload: Mapping[str, Any]
    fields: Sequence[str] | None = None  # of the payload, that count; None is all of them

    @property
    def fingerprint(self) -> str:
        """A digest of the request, whoever asks: the same key with another fingerprint is another request."""
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
    """The canonical text of a payload: the same for all that mean the same."""
    return json.dumps(walked(value, _plain, key=text_of), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: others by their kind and text."""
    is_known = value is None or isinstance(value, str | int | float | bool)
    return value if is_known and not is_endless(value) else {type(value).__qualname__: text_of(value)}


def _digest(parts: Sequence[Any]) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
