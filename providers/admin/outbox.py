"""The outbox: dead letters of providers on their way to `queue.deadletter`."""

from typing import Any, ClassVar

from django.http import HttpRequest
from unfold.decorators import display

from ergon_site.access.console import json_view
from ergon_site.access.console.cells import column, tag, two_lines, words
from ergon_site.access.console.pages import registered
from providers.admin import cells
from providers.admin.lists import KeysetDetailPage, offered
from providers.models import OutboxLetter
from providers.reads import lists


@registered(OutboxLetter)
class OutboxPage(KeysetDetailPage):
    looked_for = staticmethod(lists.letters)
    detail_template = "console/outbox_letter.html"
    empty_text = "Final failures of tasks are published from here to queue.deadletter."
    list_display = ("made", "whose", "why", "standing", "failures", "task")
    list_filter: ClassVar = [offered("published", kind="outbox letter")]
    search_fields = ()
    export_fields = ("id", "payload", "dead_letter_id", "created_at", "published_at", "failures")

    made = column("written", lambda row: row.created_at)

    @display(description="capability")
    def whose(self, row: OutboxLetter) -> str:
        told = row.payload
        return two_lines(f"{told.get('provider_name')} {told.get('capability')}", told.get("tenant_id"))

    why = column("reason", lambda row: two_lines(row.payload.get("reason_code"), row.payload.get("error_type")))
    standing = column("state", lambda row: tag("published" if row.published_at else "waiting", "outbox letter"))
    task = column("task", lambda row: words(str(row.payload.get("task_name"))))

    def details(self, request: HttpRequest, row: OutboxLetter) -> dict[str, Any]:
        told = row.payload
        return {
            "letter": row,
            "standing": self.standing(row),
            "part": {"tree": json_view.tree(told), "text": json_view.text(told)},
            "letter_address": cells.address("engines_deadletter", row.dead_letter_id),
            "correlation_address": cells.correlation_address(str(told.get("correlation_id", ""))),
        }
