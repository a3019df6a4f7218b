"""Providers by name. A task names the provider and the capability that it calls, and finds them here.

Most need not be registered: a class that alone has its two names is found by them, wherever it was imported from; each
app's module `ergon_providers` is imported to look there too. `register` is for the rest: an instance that was made with
arguments, or one of several classes that have the same names.
"""

from collections.abc import Iterator
from inspect import isabstract
from threading import Lock
from typing import TypeVar

from django.utils.module_loading import autodiscover_modules

from providers.base import ProviderBase
from providers.database.events import MODULE

Names = tuple[str, str]
Given = TypeVar("Given", bound=ProviderBase | type[ProviderBase])

_registered: dict[Names, ProviderBase] = {}
_found: dict[type[ProviderBase], ProviderBase] = {}
_lock = Lock()


class UnknownProviderError(LookupError):
    """No provider has these names, or several have."""


def register(provider: Given) -> Given:
    """Let tasks find this instance, or one of this class, by its names; the last one registered counts."""
    made = provider() if isinstance(provider, type) else provider
    _registered[made.provider_name, made.capability] = made
    return provider


def forget(provider_name: str, capability: str) -> None:
    _registered.pop((provider_name, capability), None)


def classes() -> dict[Names, type[ProviderBase]]:
    """The class of each provider and capability that this process knows; of several, the one that was written last."""
    autodiscover_modules(MODULE)
    kinds = _kinds(ProviderBase)  # type: ignore[type-abstract]
    return {_names_of(kind): kind for kind in kinds if all(_names_of(kind))}


def known(provider_name: str, capability: str) -> ProviderBase | type[ProviderBase] | None:
    """The provider that was registered by these names, or else its class; None if this process knows neither."""
    kinds = classes()
    names = (provider_name, capability)
    return _registered.get(names) or kinds.get(names)


def find(provider_name: str, capability: str) -> ProviderBase:
    """The provider of these names; one instance serves the whole process."""
    names = (provider_name, capability)
    if names not in _registered:
        autodiscover_modules(MODULE)
    if names in _registered:
        return _registered[names]
    kinds = [kind for kind in _kinds(ProviderBase) if _names_of(kind) == names]  # type: ignore[type-abstract]
    if len(kinds) != 1:
        wanted = f"provider {provider_name!r} with the capability {capability!r}"
        several = ", ".join(sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds))
        msg = f"there is no {wanted}: is its module imported?"
        if kinds:
            msg = f"there are several of {wanted}: {several}. Register the one to use."
        raise UnknownProviderError(msg)
    with _lock:
        return _found.setdefault(kinds[0], _found.get(kinds[0]) or kinds[0]())


def _kinds(kind: type[ProviderBase]) -> Iterator[type[ProviderBase]]:
    for one in kind.__subclasses__():
        if not isabstract(one):
            yield one
        yield from _kinds(one)


def _names_of(kind: type[ProviderBase]) -> Names:
    return getattr(kind, "provider_name", ""), getattr(kind, "capability", "")
