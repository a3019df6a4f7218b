from django.core import checks

from engines import logs
from engines.checks import check_settings, check_task_backends, check_tasks
from ergon_site.access.app_config import ErgonAppConfig
from ergon_site.access.checks import TAG


class EnginesConfig(ErgonAppConfig):
    default = True
    name = "engines"
    needs = ("ergon_site.access",)
    ergon_current_transaction = "engines.drivers.attempts.current_transaction"
    ergon_timeline = ("engines.reads.timeline.events",)
    ergon_bulk_kinds = tuple(
        f"engines.dead_letters.bulk_kinds.{kind}"
        for kind in ("TRANSACTIONS", "LETTERS", "GROUPS", "PIPELINES", "SCHEDULES")
    )
    ergon_bulk = "engines.dead_letters.bulk"

    def ready(self) -> None:
        logs.use_logging()
        checks.register(check_settings, TAG)
        checks.register(check_tasks)
        checks.register(check_task_backends)
