"""Settings and their defaults, for a project that does not name them. `ergon_site.settings` reads the environment."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.utils.module_loading import import_string

DEFAULTS: Mapping[str, Any] = {
    "ERGON_API_RATE": 1000.0,
    "ERGON_CERTIFICATE_HEADER": "",
    "ERGON_DATABASE_TIMEOUT": 10.0,
    "ERGON_LOGIN_FAILURES": 10,
    "ERGON_LOGIN_LOCKOUT": 900.0,
    "ERGON_METRICS_RATE": 10.0,
    "ERGON_TRUSTED_PROXIES": (),
}
# Running transactions are given back at once; artifacts are never read again.
MAY_BE_ZERO = frozenset({"ERGON_GRACE", "ERGON_VERIFY_AGE"})


def setting(name: str, defaults: Mapping[str, Any] = DEFAULTS) -> Any:
    """The project's value of a setting, or Ergon's."""
    return getattr(django_settings, name, defaults[name])


def data_folder() -> Path:
    """The folder for files: `var` in the project, unless it names another."""
    base = getattr(django_settings, "BASE_DIR", Path.cwd())
    return Path(getattr(django_settings, "ERGON_DATA_DIR", Path(base) / "var"))


def declared_by_apps(name: str) -> list[Any]:
    """What the installed apps say under a name of their configurations: chores, findings, blockers, replayers."""
    return [getattr(app, name) for app in apps.get_app_configs() if hasattr(app, name)]


def current_transaction() -> str | None:
    """The id of the transaction whose handler this code runs in, if an installed app runs handlers."""
    return next((found for find in _finders() if (found := find()) is not None), None)


@cache
def _finders() -> tuple[Callable[[], str | None], ...]:
    """Loaded once: what is installed does not change."""
    return tuple(map(import_string, declared_by_apps("ergon_current_transaction")))


def faults(defaults: Mapping[str, Any], optional: Mapping[str, type] = MappingProxyType({})) -> Iterator[str]:
    """The settings of a project that are not of the kind of their default, in words.

    Those without a default are `optional`, with their types. What should be a list or a dictionary may hold passwords,
    and is not quoted.
    """
    for name, default in defaults.items():
        value, kind = setting(name, defaults), optional.get(name, type(default))
        if value is None and default is None:
            continue
        least = "of at least 0" if name in MAY_BE_ZERO else "above 0"
        if kind is bool and not isinstance(value, bool):
            yield f"{name} must be True or False, not {value!r}."
        elif kind is int and not (isinstance(value, int) and _is_number(value, name)):
            yield f"{name} must be a whole number {least}, not {value!r}."
        elif kind is float and not _is_number(value, name):
            yield f"{name} must be a number {least}, not {value!r}."
        elif kind is str and not isinstance(value, str):
            yield f"{name} must be a text, not {value!r}."
        elif kind is tuple and not isinstance(value, list | tuple):
            yield f"{name} must be a list, not {type(value).__name__}."
        elif kind is dict and not isinstance(value, dict):
            yield f"{name} must be a dictionary, not {type(value).__name__}."


def _is_number(value: Any, name: str) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (0 < value < math.inf or (value == 0 and name in MAY_BE_ZERO))
