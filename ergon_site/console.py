"""The console: Django's admin as the one place for operators."""

from functools import partial
from typing import Any, NamedTuple

from django.contrib.auth.views import PasswordChangeView
from django.core.exceptions import PermissionDenied
from django.core.paginator import InvalidPage
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse_lazy
from django.utils import timezone
from unfold.sites import UnfoldAdminSite

from engines.reads import executors
from ergon_site.access import addresses
from ergon_site.access.console.pages import holds
from ergon_site.access.console.password_forms import LoginForm, PasswordForm
from ergon_site.access.core.roles import Right
from ergon_site.dashboard import page as dashboard


class Entry(NamedTuple):
    """A line of the sidebar, for who has the right."""

    title: str
    icon: str
    address: str
    right: Right = Right.VIEW


ENTRIES = {
    "": [Entry("Dashboard", "space_dashboard", "admin:index")],
    "Engines": [
        Entry("Transactions", "swap_vert", "admin:engines_transactionrecord_changelist"),
        Entry("Dead-letter groups", "mark_email_unread", "admin:engines_deadlettergroup_changelist"),
        Entry("Bulk operations", "dynamic_feed", "admin:engines_bulkoperation_changelist"),
        Entry("Pipelines", "conveyor_belt", "admin:engines_pipeline_changelist"),
        Entry("Policies", "tune", "admin:engines_policy_changelist"),
        Entry("Schedules", "calendar_clock", "admin:engines_schedule_changelist"),
        Entry("Workers", "memory", "admin:engines_worker_changelist"),
        Entry("Executors", "terminal", "admin:engines_executor_list"),
    ],
    "Providers": [
        Entry("Capabilities", "monitor_heart", "admin:providers_gate_changelist"),
        Entry("Attempts", "call_made", "admin:providers_providerexecutionmetric_changelist"),
        Entry("Events", "history", "admin:providers_providerevent_changelist"),
        Entry("Provider policies", "rule_settings", "admin:providers_providerpolicyrow_changelist"),
        Entry("Task executions", "task_alt", "admin:providers_taskexecution_changelist"),
        Entry("Outbox letters", "outbox", "admin:providers_outboxletter_changelist"),
    ],
    "Facts": [
        Entry("Boundaries", "fence", "admin:facts_boundary_changelist"),
        Entry("Consumers", "move_to_inbox", "admin:facts_consumer_changelist"),
        Entry("Facts", "receipt", "admin:facts_fact_changelist"),
        Entry("Forwarded facts", "forward_to_inbox", "admin:facts_forwardedfact_changelist"),
        Entry("Artifacts", "attach_file", "admin:facts_artifact_changelist"),
        Entry("Zones", "location_on", "admin:facts_zone_changelist"),
    ],
    "Access": [
        Entry("API clients", "key", "admin:access_apiclient_changelist", Right.ADMINISTER),
        Entry("Users", "group", "admin:auth_user_changelist", Right.ADMINISTER),
        Entry("Roles", "badge", "admin:access_role_changelist", Right.ADMINISTER),
        Entry("Audit entries", "receipt_long", "admin:access_auditentry_changelist", Right.AUDIT),
    ],
    "Integrate": [Entry("API reference", "integration_instructions", "docs")],
}
MENU = list(ENTRIES.items())


class Console(UnfoldAdminSite):
    index_title = "Dashboard"
    login_form = LoginForm
    index_template = "console/dashboard.html"

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
            path("engines/executor/", self.admin_view(self.executors), name="engines_executor_list"),
            path("engines/executor/live/", self.admin_view(self.executors_live), name="engines_executor_live"),
        ]
        return [*own, *super().get_urls()]

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        request.current_app = self.name
        page = PasswordChangeView.as_view(
            form_class=partial(PasswordForm, address=addresses.client_address(request)),
            success_url=reverse_lazy("admin:password_change_done"),
            extra_context={**self.each_context(request), **(extra_context or {})},
        )
        return page(request)

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        try:
            found: HttpResponse = super().search(request, extra_context)
        except (InvalidPage, ValueError):
            # The theme takes the number of a page as it comes.
            raise Http404 from None
        return found

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        page: TemplateResponse = super().index(request, {**dashboard.page_context(request), **(extra_context or {})})
        return page

    def live(self, request: HttpRequest) -> TemplateResponse:
        return TemplateResponse(request, "console/dashboard_live.html", dashboard.page_context(request))

    def executors(self, request: HttpRequest) -> TemplateResponse:
        shown = {**self.each_context(request), "title": "Executors", **_executors(request)}
        return TemplateResponse(request, "console/executors.html", shown)

    def executors_live(self, request: HttpRequest) -> TemplateResponse:
        return TemplateResponse(request, "console/executors_live.html", _executors(request))


def _executors(request: HttpRequest) -> dict[str, Any]:
    if not holds(request, Right.VIEW):
        raise PermissionDenied
    return {"executors": executors.list_executors(), "read_at": timezone.now()}


def menu(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar: what this person may see."""
    groups = []
    for title, entries in MENU:
        shown = [
            {"title": entry.title, "icon": entry.icon, "link": reverse_lazy(entry.address)}
            for entry in entries
            if holds(request, entry.right)
        ]
        if shown:
            groups.append({"title": title, "separator": bool(title), "items": shown})
    return groups
