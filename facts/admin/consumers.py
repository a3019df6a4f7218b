"""Consumers: who reads which boundary, and how far each is."""

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from ergon_site.access.buttons import bar, button
from ergon_site.access.core.roles import Right
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.pages import ReasonForm, actor
from facts import provisioning, retiring
from facts.admin import amounts, links
from facts.admin.consumer_form import ConsumerForm
from facts.admin.consumer_list import ConsumerColumns, ConsumerList, ReadFilter
from facts.admin.dialogs import Verbs
from facts.core.errors import FactError
from facts.core.watching import Worry
from facts.models import Boundary, Consumer
from facts.reads import health

RETIRE = {
    "title": "Retire the consumer",
    "description": "Nobody can read as it any more, and facts that only it has not confirmed may be truncated.",
}
INTRO = "A consumer fetches the facts after its cursor and moves the cursor by confirming."


@admin.register(Consumer)
class ConsumersPage(ConsumerColumns, Verbs):
    edit_right = Right.LEAD
    actions_detail = ("retire",)
    refused_by = (FactError,)
    detail_template = "console/fact_consumer.html"
    new_title = "New consumer"
    empty_text = "A consumer reads a boundary in order, at its own pace. Create it here before its first fetch."
    list_display = ("reader", "reads", "place", "backlog", "fetched", "confirmed")
    list_filter: ClassVar = [ReadFilter]
    search_fields = ("name__startswith",)
    search_help_text = "Start of a name."
    export_fields = (
        "name",
        "boundary__from_zone__name",
        "boundary__to_zone__name",
        "cursor",
        "confirmed_at",
        "retired_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Consumer]:
        rows: QuerySet[Consumer] = super().get_queryset(request)
        return rows.select_related("boundary__from_zone", "boundary__to_zone")

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ConsumerList]:
        return ConsumerList

    def details(self, request: HttpRequest, row: Consumer) -> dict[str, Any]:
        stand = health.of_consumers(Consumer.objects.filter(pk=row.pk))[0]
        address = links.fact(links.buffer(row.boundary), row.boundary_id, row.cursor + 1)
        following = address if stand.flow.backlog else ""
        lag = amounts.span(stand.flow.lag)
        retire = button(request, "Retire", reverse("admin:facts_consumer_retire", args=[row.pk]), right=Right.LEAD)
        overdue = amounts.span(stand.overdue) if Worry.HOLDING in stand.worries else ""
        more = {"bar": bar(*([] if row.is_retired else [retire])), "overdue": overdue}
        return {
            **more,
            "consumer": row,
            "standing": stand,
            "following": following,
            "lag": lag,
            "boundary": row.boundary,
        }

    @dialog_action(description="Retire", url_path="retire", permissions=["change"], dialog=RETIRE)
    def retire(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        row: Consumer = self.row(request, object_id)
        why = {"by": actor(request), "reason": form.cleaned_data["reason"]}
        told = f"Retired: nobody can read as {row} any more."
        return self.tried(request, lambda: retiring.retire_consumer(row.name, **why), told, object_id)

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ConsumerForm(request.POST or None)
        made = self.attempt(form, lambda: self._make(request, form.cleaned_data))
        page: dict[str, Any] = {"form": form, "submit_text": "Create consumer", "intro": INTRO}
        return made or self.page(request, "console/form.html", "New consumer", **page)

    def _make(self, request: HttpRequest, asked: dict[str, Any]) -> HttpResponse:
        boundary = Boundary.objects.select_related("from_zone", "to_zone").get(pk=asked["boundary"])
        zones = (boundary.from_zone.name, boundary.to_zone.name)
        start = asked["offset"] if asked["start"] == "offset" else asked["start"]
        why = {"by": actor(request), "reason": asked["reason"]}
        row = provisioning.create_consumer(asked["name"], *zones, start=start, **why)
        messages.success(request, f"The consumer {row} was created.")
        return redirect(self.address(row.pk))
