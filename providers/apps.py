from typing import Any

from django.apps import AppConfig
from django.core import checks


class ProvidersConfig(AppConfig):
    name = "providers"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(_check)


def _check(**given: Any) -> list[checks.CheckMessage]:
    # Loaded with Celery, which most commands start without.
    from providers.checks import check_providers, check_tasks

    return [*check_providers(**given), *check_tasks(**given)]
