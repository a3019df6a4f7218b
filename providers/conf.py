"""The settings of providers, read once into one frozen value."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings as django_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    broker_url: str | None
    celery_app: str  # where it is found, so that this app need not know the site
    journal: Path  # outcomes that the database could not take


@cache
def settings() -> ProviderSettings:
    return ProviderSettings(
        broker_url=django_settings.CELERY_BROKER_URL,
        celery_app=django_settings.ERGON_CELERY_APP,
        journal=Path(django_settings.ERGON_PROVIDER_JOURNAL),
    )
