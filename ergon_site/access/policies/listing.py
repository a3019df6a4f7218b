"""The console's list of the policies of an app: which version of each is in force, and who changed it last."""

from typing import Any

from django.db.models import F, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from unfold.decorators import display

from ergon_site.access.core.roles import Right
from ergon_site.access.detail import DetailPage
from ergon_site.access.models import AuditEntry
from ergon_site.access.policies import targets


class PolicyList(DetailPage):
    """Offers the columns `version`, `changed_by` and `changed_at`; `last_by` and `last_at` can be exported."""

    edit_right = Right.EDIT_POLICIES
    new_title = "New policy"
    search_help_text = "Start of a name."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With who changed each last: wrote or activated a version of it."""
        newest = AuditEntry.objects.filter(target=targets.of_each(self.model)).order_by("-at", "-id")
        rows: QuerySet[Any] = (
            super()
            .get_queryset(request)
            .annotate(
                last_by=Coalesce(Subquery(newest.values("actor")[:1]), F("active__author")),
                last_at=Coalesce(Subquery(newest.values("at")[:1]), F("active__created_at")),
            )
        )
        return rows.select_related("active")

    @display(description="version", ordering="active__number")
    def version(self, policy: Any) -> str:
        return f"v{policy.active.number}"

    @display(description="last changed by", ordering="last_by")
    def changed_by(self, policy: Any) -> str:
        return str(policy.last_by)

    @display(description="last changed", ordering="last_at")
    def changed_at(self, policy: Any) -> Any:
        return policy.last_at
