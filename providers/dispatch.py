"""The site's Celery app: which of its tasks call providers, and how one of them is sent by its name."""

from functools import partial
from typing import Any

from django.db import transaction
from django.utils.module_loading import autodiscover_modules, import_string

from providers.conf import settings
from providers.tasks import AMENDED, CeleryProviderTask


def app() -> Any:
    """The site's Celery app, with all tasks."""
    found = import_string(settings().celery_app)
    # Not by Celery's own way, which would run the checks of Django, which ask for this.
    autodiscover_modules("tasks")
    return found


def provider_tasks() -> list[CeleryProviderTask]:
    return [task for task in app().tasks.values() if isinstance(task, CeleryProviderTask)]


def send(task_name: str, sent: dict[str, Any], amended: dict[str, Any], *, task_id: str) -> None:
    """Send a task of this name; in the caller's transaction, which is undone if the broker does not take it.

    Without a broker it runs once the transaction has ended, since no provider is called within one.
    """
    celery = app()
    kwargs = sent["kwargs"] | {AMENDED: amended}
    order = partial(celery.tasks[task_name].apply_async, sent["args"], kwargs, task_id=task_id)
    if celery.conf.task_always_eager:
        transaction.on_commit(order)
    else:
        order()
