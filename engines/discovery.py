"""Finds tasks and makes services: those of installed apps and those that the settings name."""

from functools import cache
from importlib import import_module
from typing import Any

from django.utils.module_loading import autodiscover_modules

from engines import registry
from engines.conf import settings
from engines.core.errors import EngineError


class DiscoveryError(EngineError):
    """A module or factory that the settings name and that is not there."""


@cache
def discover() -> None:
    """Import every app's `ergon_tasks` and the modules in `ERGON_TASKS`, once."""
    autodiscover_modules("ergon_tasks")
    for name in settings().tasks:
        import_module(name)


@cache
def services() -> dict[str, Any]:
    """One instance of every service, for this process."""
    return {name: registry.services.find(name)() for name in registry.services.names()}
