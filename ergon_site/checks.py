"""System checks: what `manage.py check` tells of settings that can be read but cannot work."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.checks import check_admin_app
from django.core.checks import CheckMessage, Warning as Caution


def check_console(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """The console's pages, which only the addresses load."""
    import_module(settings.ROOT_URLCONF)
    return list(check_admin_app(app_configs))


def check_tasks(**_: Any) -> list[Caution]:
    """Every module of ERGON_TASKS is there; what is in it is not run.

    A warning: `migrate` and the web process work without tasks. `consume`, `produce` and Celery workers do not start.
    """
    missing = []
    for name in settings.ERGON_TASKS:
        try:
            is_there = find_spec(name) is not None
        except (ImportError, ValueError):
            # A part before the last one is missing, or is no package. Anything else is for whoever loads it to tell.
            is_there = False
        if not is_there:
            text = f"ERGON_TASKS names a module that is not there: {name!r}."
            hint = "Put its folder into PYTHONPATH, or install its package."
            missing.append(Caution(text, hint=hint, id="ergon.W001"))
    return missing


def check_certificate_header(**_: Any) -> list[Caution]:
    """A header that has a second spelling is only as good as the proxy that drops it."""
    name = settings.ERGON_CERTIFICATE_HEADER
    if "-" not in name:
        return []
    text = f"ERGON_CERTIFICATE_HEADER: web servers do not tell {name} from {name.replace('-', '_')}."
    hint = "Choose a name without hyphens, or make sure that the proxy drops headers with underscores."
    return [Caution(text, hint=hint, id="ergon.W002")]
