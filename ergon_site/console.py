"""The console: Django's admin as the one place for operators."""

from collections.abc import Callable, Iterator
from datetime import UTC
from functools import cache, partial, wraps
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import PasswordChangeView
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.templatetags.static import static
from django.urls import NoReverseMatch, URLPattern, path, reverse, reverse_lazy
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.utils.text import capfirst
from unfold.sites import UnfoldAdminSite

from engines.reads import executors
from ergon_site.access import addresses
from ergon_site.access.console import fragments, palette
from ergon_site.access.console.cells import UNKNOWN
from ergon_site.access.console.pages import PAGES, holds, without_request_transaction
from ergon_site.access.console.password_forms import LoginForm, PasswordForm
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import page_time
from ergon_site.console_templates import rendered
from ergon_site.dashboard import acknowledging, badges, page as dashboard, series
from ergon_site.error_pages import at_login, in_shell

APPS = ("ergon_site.access", "engines", "providers", "facts")
R = TypeVar("R", bound=HttpResponseBase)
STOCK = {"auth.User", "auth.Group", "django_celery_results.GroupResult", "django_celery_results.TaskResult"}


class Entry(NamedTuple):
    """A line of the sidebar, for who has the right."""

    title: str
    icon: str
    address: str
    right: Right = Right.VIEW


ENTRIES = {
    "": [Entry("Dashboard", "space_dashboard", "ergon:index")],
    "Engines": [
        Entry("Transactions", "swap_vert", "ergon:engines_transactionrecord_changelist"),
        Entry("Dead-letter groups", "mark_email_unread", "ergon:engines_deadlettergroup_changelist"),
        Entry("Bulk operations", "dynamic_feed", "ergon:engines_bulkoperation_changelist"),
        Entry("Pipelines", "conveyor_belt", "ergon:engines_pipeline_changelist"),
        Entry("Policies", "tune", "ergon:engines_policy_changelist"),
        Entry("Schedules", "calendar_clock", "ergon:engines_schedule_changelist"),
        Entry("Workers", "memory", "ergon:engines_worker_changelist"),
        Entry("Executors", "terminal", "ergon:engines_executor_list"),
    ],
    "Providers": [
        Entry("Capabilities", "monitor_heart", "ergon:providers_gate_changelist"),
        Entry("Attempts", "call_made", "ergon:providers_providerexecutionmetric_changelist"),
        Entry("Events", "history", "ergon:providers_providerevent_changelist"),
        Entry("Provider policies", "rule_settings", "ergon:providers_providerpolicyrow_changelist"),
        Entry("Task executions", "task_alt", "ergon:providers_taskexecution_changelist"),
        Entry("Outbox letters", "outbox", "ergon:providers_outboxletter_changelist"),
    ],
    "Facts": [
        Entry("Boundaries", "fence", "ergon:facts_boundary_changelist"),
        Entry("Consumers", "move_to_inbox", "ergon:facts_consumer_changelist"),
        Entry("Facts", "receipt", "ergon:facts_fact_changelist"),
        Entry("Forwarded facts", "forward_to_inbox", "ergon:facts_forwardedfact_changelist"),
        Entry("Artifacts", "attach_file", "ergon:facts_artifact_changelist"),
        Entry("Zones", "location_on", "ergon:facts_zone_changelist"),
    ],
    "Access": [
        Entry("API clients", "key", "ergon:access_apiclient_changelist", Right.ADMINISTER),
        Entry("Users", "group", "ergon:auth_user_changelist", Right.ADMINISTER),
        Entry("Roles", "badge", "ergon:access_role_changelist", Right.ADMINISTER),
        Entry("Audit entries", "receipt_long", "ergon:access_auditentry_changelist", Right.AUDIT),
    ],
    "Integrate": [Entry("API reference", "integration_instructions", "ergon-api-reference")],
}
MENU = list(ENTRIES.items())


def _static(name: str) -> Callable[[HttpRequest], str]:
    """The address of a file of the console, as the theme asks for it."""
    return lambda _: static(f"ergon/{name}")


# What the theme looks up in the settings, under the name that a site gives it.
THEME: dict[str, Any] = {
    "SITE_TITLE": "Ergon",
    "SITE_HEADER": "Ergon",
    "SITE_SUBHEADER": "Work that must not get lost",
    "SITE_SYMBOL": "conveyor_belt",
    "SITE_URL": None,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("favicon.svg")}],
    "STYLES": [_static("console.css"), _static("lists.css"), _static("dashboard.css"), _static("find.css")],
    "SCRIPTS": [_static("forms.js"), _static("badges.js")],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "COLORS": {
        "primary": {
            "50": "oklch(97% .014 254.6)",
            "100": "oklch(93.2% .032 255.6)",
            "200": "oklch(88.2% .059 254.1)",
            "300": "oklch(80.9% .105 251.8)",
            "400": "oklch(70.7% .165 254.6)",
            "500": "oklch(62.3% .214 259.8)",
            "600": "oklch(54.6% .245 262.9)",
            "700": "oklch(48.8% .243 264.4)",
            "800": "oklch(42.4% .199 265.6)",
            "900": "oklch(37.9% .146 265.5)",
            "950": "oklch(28.2% .091 267.9)",
        },
    },
    "BORDER_RADIUS": "6px",
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": "ergon_site.console.menu",
    },
}


class Console(UnfoldAdminSite):
    """Ergon's pages: the admin site of Ergon's own settings, and a second one beside the admin of another project."""

    settings_name = "ERGON_CONSOLE"
    index_title = "Dashboard"
    empty_value_display = UNKNOWN
    login_form = LoginForm
    index_template = "console/dashboard.html"

    def __init__(self, name: str = "ergon") -> None:
        super().__init__(name)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:  # noqa: FBT001, FBT002 (Django's)
        return super().admin_view(fragments.conditional(in_shell(self, in_utc(rendered(view)))), cacheable)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        # Not once for all: settings that are overridden for a while, as in tests, take it away with them.
        if not hasattr(settings, self.settings_name):
            setattr(settings, self.settings_name, THEME)
        if fragments.is_fragment(request):
            return {"fragment": fragments.TEMPLATE}  # and no menu, which costs more than most fragments
        context: dict[str, Any] = super().each_context(request)
        return context | {"served_at": page_time()}

    def app_index(
        self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        title = {"title": apps.get_app_config(app_label).verbose_name}
        page: TemplateResponse = super().app_index(request, app_label, {**title, **(extra_context or {})})
        return page

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> Any:
        """Only where it is shown: with two addresses for each model it takes a third of a page's time."""
        return SimpleLazyObject(partial(super().get_app_list, request, app_label))

    @method_decorator([login_not_required, transaction.non_atomic_requests])
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        page: HttpResponse = at_login(self, in_utc(rendered(super().login)))(request, extra_context)
        return page

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register models, also those with a key of several columns: their pages say how a row is addressed."""
        models: Any = [model_or_iterable] if isinstance(model_or_iterable, type) else model_or_iterable
        for model in models:
            if model._meta.is_composite_pk:  # noqa: SLF001 (Django refuses these, whose rows its own pages cannot address)
                self._registry[model] = admin_class(model, self)
            else:
                super().register(model, admin_class, **options)

    def get_urls(self) -> list[URLPattern]:
        own = [
            path("live/", self.admin_view(self.live), name="live"),
            path("badges/", self.admin_view(badges.view), name="badges"),
            path("attention/acknowledge/", self.admin_view(self.acknowledge), name="attention_acknowledge"),
            path("attention/withdraw/", self.admin_view(self.withdraw), name="attention_withdraw"),
            path("series/", self.admin_view(series.data, cacheable=True), name="series"),
            path("series/table/", self.admin_view(self.series_table), name="series_table"),
            path("engines/executor/", self.admin_view(self.executors), name="engines_executor_list"),
            path("engines/executor/live/", self.admin_view(self.executors_live), name="engines_executor_live"),
        ]
        return without_request_transaction([*own, *super().get_urls()])

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        request.current_app = self.name
        page = PasswordChangeView.as_view(
            form_class=partial(PasswordForm, address=addresses.client_address(request)),
            success_url=reverse_lazy("ergon:password_change_done"),
            extra_context={**self.each_context(request), "title": "Change password", **(extra_context or {})},
        )
        return page(request)

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The palette's lines as JSON, or as a page where no script runs."""
        text = request.GET.get("q", "")
        sections = palette.find(request, text, sorted(self._registry.values(), key=_place_in_menu), menu(request))
        if not request.accepts("text/html"):
            shown = [{"title": one.title, "lines": [line[:3] for line in one.lines]} for one in sections]
            return JsonResponse({"sections": shown}, headers={"Vary": "Accept", "Cache-Control": "no-store"})
        context = {**self.each_context(request), "title": "Search", "text": text, "sections": sections}
        return TemplateResponse(request, "console/find.html", context, headers={"Vary": "Accept"})

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        page: TemplateResponse = super().index(request, {**dashboard.page_context(request), **(extra_context or {})})
        return page

    def live(self, request: HttpRequest) -> TemplateResponse:
        return TemplateResponse(request, "console/dashboard_live.html", dashboard.page_context(request))

    def acknowledge(self, request: HttpRequest) -> HttpResponse:
        return acknowledging.acknowledge(request, self.each_context(request))

    def withdraw(self, request: HttpRequest) -> HttpResponse:
        return acknowledging.withdraw(request, self.each_context(request))

    def series_table(self, request: HttpRequest) -> TemplateResponse:
        shown = {**self.each_context(request), **series.tables(request)}
        return TemplateResponse(request, "console/chart_tables.html", shown)

    def executors(self, request: HttpRequest) -> TemplateResponse:
        shown = {**self.each_context(request), "title": "Executors", **_executors(request)}
        return TemplateResponse(request, "console/executors.html", shown)

    def executors_live(self, request: HttpRequest) -> TemplateResponse:
        return TemplateResponse(request, "console/executors_live.html", _executors(request))


def in_utc(view: Callable[..., R]) -> Callable[..., R]:
    """The view, which tells and takes times in UTC, whatever the time zone of the project."""

    @wraps(view)
    def answer(*args: Any, **options: Any) -> R:
        with timezone.override(UTC):
            return view(*args, **options)

    return answer


def _executors(request: HttpRequest) -> dict[str, Any]:
    if not holds(request, Right.VIEW):
        raise PermissionDenied
    return {"executors": executors.list_executors(), "read_at": page_time()}


@cache
def console() -> Console:
    """The console with its pages: the project's admin site, if that is Ergon's, or a site beside it."""
    for app in APPS:
        if apps.is_installed(app):
            import_module(f"{app}.admin")
    site: Any = admin.site
    console = site if isinstance(site, Console) else Console()
    if console is site:
        admin.autodiscover()
    # People and Celery's results have stock pages, on which they would be written and deleted unaudited.
    for model in [model for model in console._registry if model._meta.label in STOCK]:  # noqa: SLF001
        console.unregister(model)
    for model, page in PAGES.items():
        console.register(model, page)
    return console


def menu(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar: what this person may see."""
    groups, counts = [], badges.by_address(request)
    for title, entries in [*MENU, *_entries_of_the_project(request)]:
        shown = [
            {
                "title": entry.title,
                "icon": entry.icon,
                "link": link,
                # Not "badge", which the theme takes for the name of a function.
                "count": counts.get(entry.address, ""),
                "count_of": badges.TITLES.get(entry.address, ""),
                "name": entry.address,
            }
            for entry in entries
            if holds(request, entry.right) and (link := _address(entry))
        ]
        if shown:
            groups.append({"title": title, "separator": bool(title), "items": shown})
    return groups


def _place_in_menu(page: Any) -> int:
    """Where the menu has the list of a page; those that it does not have come last."""
    listed = [entry.address for _, entries in MENU for entry in entries]
    address = f"ergon:{page.opts.app_label}_{page.opts.model_name}_changelist"
    return listed.index(address) if address in listed else len(listed)


def _address(entry: Entry) -> str:
    """Where an entry leads; empty if its app is not installed."""
    try:
        return reverse(entry.address)
    except NoReverseMatch:
        return ""


def _entries_of_the_project(request: HttpRequest) -> Iterator[tuple[str, list[Entry]]]:
    """The pages that apps of the project have registered with the console."""
    if console()._registry.keys() <= PAGES.keys():  # noqa: SLF001
        return
    for app in console().get_app_list(request):
        names = [model["model"] for model in app["models"] if model["model"] not in PAGES]
        if names:
            address = "ergon:{0.app_label}_{0.model_name}_changelist"
            entries = [(one._meta.verbose_name_plural, address.format(one._meta)) for one in names]  # noqa: SLF001
            yield app["name"], [Entry(capfirst(title), "table_rows", where) for title, where in entries]
