from typing import Any

from django.apps import apps as current
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db.models.signals import post_migrate

from ergon_site.access.app_config import ErgonAppConfig
from ergon_site.access.checks import TAG, setting_errors, wrong_setting


class FactsConfig(ErgonAppConfig):
    default = True
    name = "facts"
    needs = ("ergon_site.access",)
    ergon_chores = {
        "copies_ended": (2.0, "facts.ledger.postgresql.end_frozen_copies"),
        "artifacts_swept": (3600.0, "facts.artifacts.sweep"),
        "message_ids_forgotten": (3600.0, "facts.ledger.forget"),
        # Asked more often than once a minute, so that no minute is left out.
        "boundaries_sampled": (15.0, "facts.reads.series.sample"),
        "boundary_samples_forgotten": (3600.0, "facts.reads.series.forget"),
    }
    ergon_zones = ("facts.provisioning.zone_names",)
    ergon_findings = ("ergon_site.dashboard.facts.findings",)
    ergon_timeline = ("facts.reads.timeline.events",)
    ergon_bulk_kinds = ("facts.bulk.ARTIFACTS",)

    def ready(self) -> None:
        post_migrate.connect(_register_zone, sender=self)
        checks.register(check_settings, TAG)


def check_settings(**_: Any) -> list[checks.CheckMessage]:
    from facts import conf

    found = list(setting_errors(conf.DEFAULTS))
    if not found:
        try:
            conf.settings.__wrapped__()  # as they are now, whatever was read before
        except ImproperlyConfigured as error:
            found.append(wrong_setting(str(error)))
    return found


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
