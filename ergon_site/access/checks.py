"""System checks of a project that has Ergon in it: what is missing, in words, before anything fails for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning as Caution
from django.db import connection
from django.urls import NoReverseMatch, reverse

from ergon_site.access import addresses, conf

CONSOLE = ("django.contrib.messages", "django.contrib.sessions", "unfold")
VENDORS = ("postgresql", "sqlite")
# The checks that processes run as they start; all others look at pages and tasks, which takes long.
TAG = "ergon"
ADMIN, THEME = "django.contrib.admin", "unfold"


def check_project(**_: Any) -> list[CheckMessage]:
    """The database and the settings that all of Ergon builds on."""
    found: list[CheckMessage] = []
    if connection.vendor not in VENDORS:
        text = f"Ergon keeps its tables in PostgreSQL or SQLite, and the default database is {connection.display_name}."
        hint = "Name a database of one of these kinds 'default' in DATABASES."
        found.append(Error(text, hint=hint, id="ergon.E001"))
    if not settings.USE_TZ:
        text = "USE_TZ is False: no outcome could be kept, because Ergon compares the database's times with its own."
        found.append(Error(text, hint="Set USE_TZ to True, as Django does by default.", id="ergon.E005"))
    wrong = list(setting_errors(conf.DEFAULTS))
    return [*found, *(wrong or _proxies())]


def setting_errors(defaults: Mapping[str, Any], **optional: type) -> Iterator[CheckMessage]:
    for text in conf.faults(defaults, optional):
        yield wrong_setting(text)


def wrong_setting(text: str) -> CheckMessage:
    return Error(text, hint="docs/reference/settings.md tells what each setting means.", id="ergon.E002")


def _proxies() -> Iterator[CheckMessage]:
    try:
        trusted = addresses.trusted_proxies()
    except ValueError as error:
        yield wrong_setting(f"ERGON_TRUSTED_PROXIES must be addresses and networks such as '10.1.0.0/16': {error}.")
        return
    if conf.setting("ERGON_CERTIFICATE_HEADER") and not trusted:
        yield wrong_setting("ERGON_CERTIFICATE_HEADER needs ERGON_TRUSTED_PROXIES: anybody can send a header.")


def check_console(**_: Any) -> list[CheckMessage]:
    """What the console needs, in a project that includes `ergon_site.urls`."""
    try:
        reverse("ergon:index")
    except NoReverseMatch:
        return []
    found: list[CheckMessage] = [_missing(app) for app in CONSOLE if not apps.is_installed(app)]
    if not apps.is_installed("django.contrib.staticfiles"):
        text = "The console has no styles and scripts without 'django.contrib.staticfiles' in INSTALLED_APPS."
        found.append(
            Caution(text, hint="Add it, or serve the static files of the apps in another way.", id="ergon.W003")
        )
    return [*found, *_theme()]


def _theme() -> Iterator[CheckMessage]:
    """A theme for the console that would be one for the project's own admin, too."""
    names = [app.name for app in apps.get_app_configs()]
    if ADMIN not in names or THEME not in names or type(apps.get_app_config("admin")).__module__ == "ergon_site.apps":
        return
    is_basic = type(apps.get_app_config(THEME)).__name__ == "BasicAppConfig"
    is_first = names.index(THEME) < names.index(ADMIN)
    if is_basic == is_first:  # a project that has the theme itself names the other class, first
        text = "INSTALLED_APPS gives the theme of Ergon's console to the pages of the project's own admin."
        hint = "Put 'unfold.apps.BasicAppConfig' after 'django.contrib.admin'."
        yield Caution(text, hint=hint, id="ergon.W004")


def check_certificate_header(**_: Any) -> list[CheckMessage]:
    """A header that has a second spelling is only as good as the proxy that drops it."""
    name = conf.setting("ERGON_CERTIFICATE_HEADER")
    if "-" not in name:
        return []
    text = f"ERGON_CERTIFICATE_HEADER: web servers do not tell {name} from {name.replace('-', '_')}."
    hint = "Choose a name without hyphens, or make sure that the proxy drops headers with underscores."
    return [Caution(text, hint=hint, id="ergon.W002")]


def check_reference(**_: Any) -> list[CheckMessage]:
    """The page that describes the API, which is there where drf_spectacular is installed."""
    name = "drf_spectacular.openapi.AutoSchema"
    given = getattr(settings, "REST_FRAMEWORK", {}).get("DEFAULT_SCHEMA_CLASS")
    if not apps.is_installed("drf_spectacular") or given == name:
        return []
    text = "The API reference cannot be made: drf_spectacular is installed and describes no views."
    hint = f"Set REST_FRAMEWORK['DEFAULT_SCHEMA_CLASS'] to {name!r}."
    return [Caution(text, hint=hint, id="ergon.W005")]


def _missing(app: str) -> CheckMessage:
    shown = "unfold.apps.BasicAppConfig" if app == THEME else app
    return Error(f"INSTALLED_APPS lacks {app!r}, which the console needs.", hint=f"Add {shown!r}.", id="ergon.E003")
