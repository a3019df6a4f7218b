from django.apps import apps
from django.contrib.admin.apps import SimpleAdminConfig
from django_celery_results.apps import CeleryResultConfig


class ConsoleConfig(SimpleAdminConfig):
    """Django's admin with Ergon's own site object in place of the default one.

    Its pages are loaded with the addresses (`ergon_site.urls`): workers and commands start sooner without them.
    """

    default_site = "ergon_site.console.Console"

    def ready(self) -> None:
        from django.contrib.admin.checks import check_dependencies
        from django.core.checks import Tags, register
        from django.core.signals import request_started
        from django.db.backends.signals import connection_created

        from ergon_site import checks, databases

        # Users stand under the same heading in breadcrumbs as in the menu.
        apps.get_app_config("auth").verbose_name = "Access"
        register(check_dependencies, Tags.admin)
        register(checks.check_console, Tags.admin)
        register(checks.check_tasks)
        register(checks.check_certificate_header, deploy=True)
        # No row's signal: the only place that every connection of every thread passes, and once in its life.
        connection_created.connect(databases.check_new_connection)
        request_started.connect(databases.close_if_replaced)


class CeleryResults(CeleryResultConfig):
    """The table of Celery's results, whose models load Celery: a sixth of a start.

    Web processes, Celery workers and Django's commands, which look at all models, have them from the start. Ergon's
    commands leave them to whoever sends a task.
    """

    is_left_for_later = False

    def import_models(self) -> None:
        if self.is_left_for_later:
            self.models = self.apps.all_models[self.label]
        else:
            super().import_models()
