"""The composition root: settings, addresses, console, Celery app, telemetry."""
