from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """Django's admin with Ergon's own site object in place of the default one."""

    default_site = "ergon_site.console.Console"

    def ready(self) -> None:
        super().ready()
        from django.contrib.admin import site
        from django.core.checks import register
        from django.db.backends.signals import connection_created
        from django_celery_results.models import GroupResult, TaskResult

        from engines import diagnosis, hindrances
        from ergon_site import boundary_watch, checks, databases, provider_watch

        register(checks.check_tasks)
        register(checks.check_certificate_header, deploy=True)
        # No row's signal: the only place that every connection of every thread passes, and once in its life.
        connection_created.connect(databases.check_new_connection)
        # Celery's results are kept for programs; their stock pages would let people write and delete unaudited.
        site.unregister([GroupResult, TaskResult])
        # The engines know nothing of facts and providers; the doctor looks at all of them.
        diagnosis.REST.extend([provider_watch.findings, boundary_watch.findings])
        # Nor do they know breakers; whoever asks why a transaction waits is told of those too.
        hindrances.SEERS.append(provider_watch.hindrances)
