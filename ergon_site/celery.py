"""The Celery app: `celery -A ergon_site worker`."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")

from celery import Celery
from celery.signals import import_modules, worker_process_init

from ergon_site import telemetry

app = Celery("ergon")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@import_modules.connect
def _import_tasks(**_: object) -> None:
    """Import the modules of ERGON_TASKS, as `consume` does; a worker without one of them must not start."""
    from engines.tasks import discovery  # needs the apps, which Celery sets up first

    try:
        discovery.discover()
    except discovery.DiscoveryError as error:
        sys.stderr.write(f"ergon: {error}\n")
        sys.exit(os.EX_CONFIG)


@worker_process_init.connect
def _start_telemetry(**_: object) -> None:
    # Exporter threads do not survive the fork, so each worker process starts its own.
    telemetry.start()
