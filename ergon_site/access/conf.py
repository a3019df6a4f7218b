"""Settings and their defaults, for a project that does not name them. `ergon_site.settings` reads the environment."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings

DEFAULTS: Mapping[str, Any] = {
    "ERGON_API_RATE": 1000.0,
    "ERGON_CERTIFICATE_HEADER": "",
    "ERGON_LOGIN_FAILURES": 10,
    "ERGON_LOGIN_LOCKOUT": 900.0,
    "ERGON_METRICS_RATE": 10.0,
    "ERGON_TRUSTED_PROXIES": (),
}


def setting(name: str, defaults: Mapping[str, Any] = DEFAULTS) -> Any:
    """The project's value of a setting, or Ergon's."""
    return getattr(django_settings, name, defaults[name])


def data_folder() -> Path:
    """The folder for files: `DATA_DIR`, or `var` in the project."""
    base = getattr(django_settings, "BASE_DIR", Path.cwd())
    return Path(getattr(django_settings, "DATA_DIR", Path(base) / "var"))


def declared_by_apps(name: str) -> list[Any]:
    """What the installed apps say under a name of their configurations: chores, findings, blockers, replayers."""
    return [getattr(app, name) for app in apps.get_app_configs() if hasattr(app, name)]


def faults(defaults: Mapping[str, Any]) -> Iterator[str]:
    """The settings of a project that are not of the kind of their default, in words."""
    for name, default in defaults.items():
        value = setting(name, defaults)
        match default:
            case bool():
                is_right, kind = isinstance(value, bool), "True or False"
            case int() | float():
                is_right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
                kind = "a number of at least 0"
            case str():
                is_right, kind = isinstance(value, str), "a text"
            case tuple():
                is_right, kind = isinstance(value, list | tuple), "a list"
            case dict():
                is_right, kind = isinstance(value, dict), "a dictionary"
            case _:
                continue
        if not is_right:
            yield f"{name} must be {kind}, not {value!r}."
