from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """Django's admin with Ergon's own site object in place of the default one."""

    default_site = "ergon_site.console.Console"

    def ready(self) -> None:
        super().ready()
        from django.contrib.admin import site
        from django_celery_results.models import GroupResult, TaskResult

        from engines import diagnosis, hindrances
        from ergon_site import boundary_watch, provider_watch

        # Celery's results are kept for programs; their stock pages would let people write and delete unaudited.
        site.unregister([GroupResult, TaskResult])
        # The engines know nothing of facts and providers; the doctor looks at all of them.
        diagnosis.REST.extend([provider_watch.findings, boundary_watch.findings])
        # Nor do they know breakers; whoever asks why a transaction waits is told of those too.
        hindrances.SEERS.append(provider_watch.hindrances)
