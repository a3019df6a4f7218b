from importlib import import_module
from typing import Any

from django.apps import apps
from django.conf import settings
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

        # Users stand under the same heading in breadcrumbs as in the menu.
        apps.get_app_config("auth").verbose_name = "Access"
        register(check_dependencies, Tags.admin)
        register(_check_pages, Tags.admin)


def _check_pages(app_configs: Any, **_: Any) -> list[Any]:
    """Django's check of admin pages, once they are loaded: only the addresses do that."""
    from django.contrib.admin.checks import check_admin_app

    import_module(settings.ROOT_URLCONF)
    return list(check_admin_app(app_configs))


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
