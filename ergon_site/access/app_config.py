"""The base of Ergon's app configurations."""

from typing import ClassVar

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured


class ErgonAppConfig(AppConfig):
    """An app that says which others it needs, before a model of its own fails for the lack of them."""

    default = False  # Django must not take it for the configuration of an app whose module imports it
    default_auto_field = "django.db.models.BigAutoField"
    needs: ClassVar[tuple[str, ...]] = ()

    def import_models(self) -> None:
        require(repr(self.name), *self.needs)
        super().import_models()


def require(whose: str, *names: str) -> None:
    missing = [name for name in names if not apps.is_installed(name)]
    if missing:
        msg = f"{whose} needs {', '.join(map(repr, missing))} in INSTALLED_APPS."
        raise ImproperlyConfigured(msg)
