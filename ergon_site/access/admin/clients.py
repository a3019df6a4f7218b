"""API clients: make one, say what it may do, change its token, switch it off."""

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from unfold.admin import TabularInline
from unfold.decorators import action

from ergon_site.access import clients
from ergon_site.access.admin.forms import GRANT, EditClientForm, NewClientForm, RotationForm
from ergon_site.access.clients import Issued
from ergon_site.access.console import states
from ergon_site.access.console.cells import column, tag
from ergon_site.access.console.detail import ListPage
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.pages import ReasonForm, actor, done, holds, registered
from ergon_site.access.core.roles import Right
from ergon_site.access.models import ApiClient, ApiToken


class TokensInline(TabularInline):
    model = ApiToken
    verbose_name_plural = "tokens"
    fields = readonly_fields = ("prefix", "made", "ends", "last_used")
    can_delete = False
    extra = 0

    made = column("created", lambda token: token.created_at)
    ends = column("expires", lambda token: token.expires_at, empty_value="never")
    last_used = column("last used", lambda token: token.last_used_at, empty_value="never")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return holds(request, Right.ADMINISTER)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class StateFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(states.choices("client", "enabled", "disabled").items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiClient]) -> QuerySet[ApiClient]:
        return queryset.filter(disabled_at__isnull=self.value() == "enabled") if self.value() else queryset


DISABLE = {
    "title": "Disable the client",
    "description": "All tokens of this client are refused from the next call on.",
    "keep": "Keep it active",
}
ENABLE = {"title": "Enable the client", "description": "Tokens that have not expired work again."}


@registered(ApiClient)
class ClientsPage(ListPage):
    view_right = edit_right = Right.ADMINISTER
    new_title = "New API client"
    list_display = ("name", "scope_list", "state", "last_used", "made", "created_by")
    list_filter: ClassVar = [StateFilter]
    empty_text = "A client is a system that calls the API with a token."
    search_fields = ("name",)
    search_help_text = "Part of a name"
    found_by = "name"
    change_form_before_template = "console/opened.html"
    export_fields = ("name", *GRANT[:-1], "certificate", "created_at")
    actions_detail = ("rotate", "disable", "enable")

    scope_list = column("scopes", lambda client: ", ".join(client.scopes) or "none")
    state = column("state", lambda client: tag("disabled" if client.disabled_at else "enabled", "client"))
    made = column("created", lambda client: client.created_at, ordering="created_at")
    last_used = column("last used", lambda client: client.last_used_at, ordering="last_used_at", empty_value="never")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiClient]:
        rows: QuerySet[ApiClient] = super().get_queryset(request)
        return clients.with_last_use(rows)

    def get_form(self, request: HttpRequest, obj: ApiClient | None = None, **options: Any) -> Any:
        return super().get_form(request, obj, form=EditClientForm if obj else NewClientForm, **options)

    def get_fields(self, request: HttpRequest, obj: ApiClient | None = None) -> list[str]:
        return list((EditClientForm if obj else NewClientForm).shown)

    def get_readonly_fields(self, request: HttpRequest, obj: ApiClient | None = None) -> tuple[str, ...]:
        return ("name", "certificate_used_at") if obj else ()

    def get_inlines(self, request: HttpRequest, obj: ApiClient | None) -> list[Any]:
        return [TokensInline] if obj else []

    def save_model(self, request: HttpRequest, obj: ApiClient, form: Any, change: bool) -> None:  # noqa: FBT001
        if change:
            changes, amended = form.changes(), form.amended()
            if grants := {name: changes[name] for name in GRANT if name in changes}:
                clients.amend(obj.pk, grants, by=actor(request))
            if changes.keys() - grants:
                until = amended["certificate_expires_at"]
                clients.certify(obj.pk, amended["certificate"], until=until, by=actor(request))
            return
        issued = clients.create(obj.name, form.grant(), by=actor(request), **form.terms())
        obj.pk = issued.client.pk
        request.issued = issued  # type: ignore[attr-defined]

    def response_add(self, request: HttpRequest, obj: ApiClient, post_url_continue: Any = None) -> HttpResponse:
        return self._show_once(request, request.issued)  # type: ignore[attr-defined]

    def log_addition(self, request: HttpRequest, obj: ApiClient, message: Any) -> Any:
        """The verb has written the audit entry."""

    log_change = log_addition

    @action(description="New token", url_path="rotate", permissions=["change"])
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if (client := self.get_object(request, object_id)) is None:
            raise Http404
        form = RotationForm(request.POST or None)
        if form.is_valid():
            return self._show_once(request, clients.rotate(client.pk, by=actor(request), **form.terms()))
        return self.page(request, "console/client_rotate.html", f"New token for {client}", form=form, client=client)

    def has_disable_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_change_permission(request) and self._is_enabled(request, object_id)

    def has_enable_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_change_permission(request) and not self._is_enabled(request, object_id)

    @dialog_action(description="Disable", url_path="disable", permissions=["disable"], dialog=DISABLE)
    def disable(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        clients.disable(int(object_id), by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, "Disabled: its tokens are refused from now on.")
        return done(self.address(object_id))

    @dialog_action(description="Enable", url_path="enable", permissions=["enable"], dialog=ENABLE)
    def enable(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        clients.enable(int(object_id), by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, "Enabled: tokens that have not expired work again.")
        return done(self.address(object_id))

    def _show_once(self, request: HttpRequest, issued: Issued) -> HttpResponse:
        expires_at = ApiToken.objects.values_list("expires_at", flat=True).get(prefix=issued.token.prefix)
        shown: dict[str, Any] = {"issued": issued, "expires_at": expires_at}
        return self.page(request, "console/token_issued.html", f"Token of {issued.client}", **shown)

    def _is_enabled(self, request: HttpRequest, object_id: str | None) -> bool:
        client = self.get_object(request, object_id or "")
        return client is not None and client.disabled_at is None
