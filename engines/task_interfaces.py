"""`django.tasks` of Django 6 and the package `django_tasks`: one interface, whose names are bound here for both."""

from dataclasses import dataclass, make_dataclass
from importlib import import_module
from typing import Any

import django


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The classes and signals of one of the two."""

    backend: Any
    task: Any
    context: Any
    status: Any
    result: Any
    error: Any
    refused: Any
    no_result: Any
    enqueued: Any
    started: Any
    finished: Any


def _bind(root: str) -> Interface:
    base, exceptions, signals = (import_module(f"{root}.{part}") for part in ("base", "exceptions", "signals"))
    # The return value of theirs is set afterwards; a result of ours is whole when it is made.
    added = [("_return_value", Any, None)]
    return Interface(
        backend=import_module(f"{root}.backends.base").BaseTaskBackend,
        task=base.Task,
        context=base.TaskContext,
        status=base.TaskResultStatus,
        result=make_dataclass("Result", added, bases=(base.TaskResult,), frozen=True, slots=True, kw_only=True),
        error=base.TaskError,
        refused=getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError,
        no_result=exceptions.TaskResultDoesNotExist,
        enqueued=signals.task_enqueued,
        started=signals.task_started,
        finished=signals.task_finished,
    )


PACKAGE = _bind("django_tasks")
DJANGO = _bind("django.tasks") if django.VERSION >= (6,) else None
INTERFACES = (PACKAGE,) if DJANGO is None else (PACKAGE, DJANGO)
TASK_CLASSES = tuple(one.task for one in INTERFACES)


def interface_of(task: Any) -> Interface:
    """The interface that a function is marked with."""
    return next(one for one in INTERFACES if isinstance(task, one.task))
