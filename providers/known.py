"""Which providers this process knows: every class that names itself and its capability, wherever it is written."""

from collections.abc import Iterator
from typing import Any

from providers.base import ProviderBase

Key = tuple[str, str]
BASE: Any = ProviderBase


def classes() -> dict[Key, type[ProviderBase]]:
    """The class of each provider and capability that was imported here; of several, the one that was written last."""
    return {
        (kind.provider_name, kind.capability): kind
        for kind in _below(BASE)
        if hasattr(kind, "provider_name") and hasattr(kind, "capability")
    }


def _below(kind: Any) -> Iterator[type[ProviderBase]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
