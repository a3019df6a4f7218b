"""Mistakes of tasks that are found at start."""

from typing import Any

from django.core.checks import CheckMessage, Error

from providers.registry import UnknownProviderError


def check_tasks(**_: Any) -> list[CheckMessage]:
    """Every task finds the provider that it names."""
    from providers import dispatch  # noqa: PLC0415 (Celery is loaded only where it is wanted)

    found: list[CheckMessage] = []
    for task in dispatch.provider_tasks():
        try:
            task.find_provider()
        except UnknownProviderError as error:
            found.append(Error(f"The task {task.name!r} has no provider: {error}", id="providers.E008"))
    return found
