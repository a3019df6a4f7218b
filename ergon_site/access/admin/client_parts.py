"""Parts of the client pages: the tokens of a client, and the filter by state."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from ergon_site.access.core.roles import Right
from ergon_site.access.models import ApiClient, ApiToken
from ergon_site.access.pages import holds


class TokensInline(TabularInline):
    model = ApiToken
    verbose_name_plural = "tokens"
    fields = readonly_fields = ("prefix", "created_at", "expires_at", "last_used_at")
    can_delete = False
    extra = 0

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return holds(request, Right.ADMINISTER)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class StateFilter(admin.SimpleListFilter):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("enabled", "Enabled"), ("disabled", "Disabled")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiClient]) -> QuerySet[ApiClient]:
        return queryset.filter(disabled_at__isnull=self.value() == "enabled") if self.value() else queryset
