"""The settings of providers, read once into one frozen value."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ergon_site.access import conf

DEFAULTS = {"CELERY_BROKER_URL": None, "ERGON_CELERY_APP": "ergon_site.celery.app"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    broker_url: str | None
    celery_app: str  # where it is found, so that this app need not know the site
    journal: Path  # outcomes that the database could not take


@cache
def settings() -> ProviderSettings:
    return ProviderSettings(
        broker_url=conf.setting("CELERY_BROKER_URL", DEFAULTS),
        celery_app=conf.setting("ERGON_CELERY_APP", DEFAULTS),
        journal=conf.data_folder() / "provider-journal.sqlite3",
    )
