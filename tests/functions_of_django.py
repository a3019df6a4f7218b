"""The functions of `tests.functions` as tasks of `django.tasks`, which needs Django 6, on a backend of their own."""

from django.conf import settings
from django.tasks import task

from tests.functions import define

settings.TASKS.setdefault("django", {"BACKEND": "engines.task_backend.DjangoBackend", "QUEUES": []})
globals().update(define(task, __name__, backend="django"))
