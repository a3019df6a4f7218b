"""The Celery app: `celery -A ergon_site worker`."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")

from celery import Celery
from celery.signals import worker_process_init

from ergon_site import telemetry

app = Celery("ergon")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_process_init.connect
def _start_telemetry(**_: object) -> None:
    # Exporter threads do not survive the fork, so each worker process starts its own.
    telemetry.start()
