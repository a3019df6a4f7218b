from typing import Any

from django.apps import AppConfig, apps as current
from django.core.management.base import CommandError
from django.db.models.signals import post_migrate


class FactsConfig(AppConfig):
    name = "facts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        post_migrate.connect(_register_zone, sender=self)


def _register_zone(*, using: str, apps: Any = current, **_: Any) -> None:
    """A deployment is a zone from its first migration on, and becomes another with the next one if it is renamed."""
    from facts import provisioning
    from facts.core.errors import ProvisioningError

    try:
        zones = apps.get_model("facts", "Zone").objects.using(using)
    except LookupError:  # migrated back, or not as far yet
        return
    try:
        provisioning.register_own_zone(zones)
    except ProvisioningError as error:
        msg = f"ERGON_ZONE: {error}"
        raise CommandError(msg) from None
