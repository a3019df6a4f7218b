"""Finds what authors have written: tasks in each app's `ergon_tasks` and in the modules of ERGON_TASKS; services."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from threading import RLock
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from engines.conf import settings
from engines.core.errors import EngineError, error_text
from engines.tasks import registry
from engines.tasks.registry import RegistryError

MODULE = "ergon_tasks"

_lock = RLock()


class DiscoveryError(EngineError, RegistryError):
    """Something that was named cannot be imported or made; who looks for names knows it as a name not found."""

    code = "discovery_failed"
    exit_code = os.EX_CONFIG


class Services(Mapping[str, Any]):
    """Services by name. Each is made when it is first asked for, and only once."""

    def __init__(self, factories: Mapping[str, Callable[[], Any] | str]) -> None:
        self._factories = dict(factories)
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        with _lock:
            if name not in self._made:
                self._made[name] = _make(name, self._factories[name])
            return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)


@cache
def discover() -> None:
    """Import every module with tasks, once in a process; one that fails is named and tried again the next time."""
    # Each module, and where it is named if a variable does.
    modules = [
        ("", f"{app.name}.{MODULE}")
        for app in apps.get_app_configs()
        if app.module is not None and module_has_submodule(app.module, MODULE)
    ]
    with _lock:
        for named_by, name in [*modules, *(("ERGON_TASKS: ", name) for name in settings().tasks)]:
            try:
                import_module(name)
            except Exception as error:
                msg = f"{named_by}the module {name!r} cannot be imported: {type(error).__name__}: {error_text(error)}"
                raise DiscoveryError(msg) from error


def services() -> Mapping[str, Any]:
    """The services of this process: those of ERGON_SERVICES, and those registered in code under other names."""
    discover()
    with _lock:
        return _services()


def forget() -> None:
    """Look again the next time."""
    discover.cache_clear()
    _services.cache_clear()


@cache
def _services() -> Services:
    registered = {name: registry.services.find(name) for name in registry.services.names()}
    return Services(registered | settings().services)


def _make(name: str, factory: Callable[[], Any] | str) -> Any:
    try:
        return (_find(factory) if isinstance(factory, str) else factory)()
    except Exception as error:
        named_by = "ERGON_SERVICES: " if name in settings().services else ""
        msg = f"{named_by}the service {name!r} cannot be made: {type(error).__name__}: {error_text(error)}"
        raise DiscoveryError(msg) from error


def _find(path: str) -> Any:
    """The object that `module:name` or `module.name` names."""
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not module or not name:
        msg = f"{path!r} is neither 'module:factory' nor 'module.factory'"
        raise ValueError(msg)
    return getattr(import_module(module), name)
