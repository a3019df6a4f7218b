from django.apps import AppConfig
from django.core import checks


class ProvidersConfig(AppConfig):
    name = "providers"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from engines import dead_letters
        from providers import replaying
        from providers.checks import check_providers, check_tasks

        dead_letters.replayed_by(replaying)
        checks.register(check_providers)
        checks.register(check_tasks)
