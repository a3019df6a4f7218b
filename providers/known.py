"""Which providers this process knows: every class that names itself and its capability, wherever it is written.

Each app's module `ergon_providers` is imported to look there too.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.utils.module_loading import autodiscover_modules

from providers.base import ProviderBase

MODULE = "ergon_providers"
Key = tuple[str, str]
BASE: Any = ProviderBase


def classes() -> dict[Key, type[ProviderBase]]:
    """The class of each provider and capability; of several, the one that was written last."""
    _discover()
    return {
        (kind.provider_name, kind.capability): kind
        for kind in _below(BASE)
        if hasattr(kind, "provider_name") and hasattr(kind, "capability")
    }


@cache
def _discover() -> None:
    autodiscover_modules(MODULE)


def _below(kind: Any) -> Iterator[type[ProviderBase]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
