"""System checks: settings of the engines that cannot work, and tasks that are not there."""

from importlib.util import find_spec
from typing import Any

import django
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning as Caution

from engines import conf
from engines.executors.settings import ExecutorConfigurationError, executors_in
from ergon_site.access import checks

DJANGO_BACKEND = "engines.task_backend.DjangoBackend"


def check_settings(**_: Any) -> list[CheckMessage]:
    found = list(checks.setting_errors(conf.DEFAULTS, **conf.OPTIONAL))
    if not found:
        try:
            executors_in(conf.setting("ERGON_EXECUTORS"))
        except ExecutorConfigurationError as error:
            found.append(checks.wrong_setting(str(error)))
    return found


def check_tasks(**_: Any) -> list[CheckMessage]:
    """Every module of ERGON_TASKS is there; what is in it is not run.

    A warning: `migrate` and the web process work without tasks. `consume`, `produce` and Celery workers do not start.
    """
    missing: list[CheckMessage] = []
    named = conf.setting("ERGON_TASKS")
    for name in named if isinstance(named, list | tuple) else ():
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


def check_task_backends(**_: Any) -> list[CheckMessage]:
    """TASKS names no backend for `django.tasks` where this Django has none."""
    named = getattr(settings, "TASKS", None)
    backends = named.items() if isinstance(named, dict) and django.VERSION < (6,) else ()
    hint = "Use Django 6.0, or name engines.task_backend.ErgonBackend and mark functions with django_tasks.task."
    return [
        Error(
            f"TASKS[{alias!r}] names DjangoBackend, which is for django.tasks: Django {django.__version__} has none.",
            hint=hint,
            id="ergon.E004",
        )
        for alias, backend in backends
        if isinstance(backend, dict) and backend.get("BACKEND") == DJANGO_BACKEND
    ]
