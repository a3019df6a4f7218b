from typing import Any

from django.core import checks

from ergon_site.access.app_config import ErgonAppConfig


class ProvidersConfig(ErgonAppConfig):
    default = True
    name = "providers"
    needs = ("ergon_site.access", "engines")
    ergon_chores = {
        "providers_rated": (60.0, "providers.calls.rollup"),
        "providers_pruned": (600.0, "providers.calls.prune_old"),
        "dead_letters_published": (15.0, "providers.outbox.publish"),
        "provider_outcomes_settled": (15.0, "providers.calls.journal.replay"),
    }
    ergon_findings = ("ergon_site.dashboard.providers.findings",)
    # Who asks why a transaction waits learns of breakers, too, and providers replay their own dead letters.
    ergon_blockers = ("ergon_site.dashboard.providers.hindrances",)
    ergon_replayers = ("providers.replaying",)
    ergon_timeline = ("providers.reads.timeline.events",)

    def ready(self) -> None:
        checks.register(_check)


def _check(**given: Any) -> list[checks.CheckMessage]:
    # Loaded with Celery, which most commands start without.
    from providers.checks import check_providers, check_tasks

    return [*check_providers(**given), *check_tasks(**given)]
