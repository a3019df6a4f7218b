"""Events: each change of a breaker, pause, quota or override."""

from typing import Any, ClassVar

from django.http import HttpRequest

from ergon_site.access.console.cells import UNKNOWN, column, two_lines, unbroken
from ergon_site.access.console.lists import typed
from ergon_site.access.console.pages import registered
from providers.admin import cells
from providers.admin.lists import CAPABILITY, PROVIDER, TENANT, KeysetDetailPage, offered
from providers.models import Gate, ProviderEvent
from providers.reads import lists


@registered(ProviderEvent)
class EventsPage(KeysetDetailPage):
    looked_for = staticmethod(lists.events)
    detail_template = "console/provider_event.html"
    empty_text = "Each change of a breaker, pause, quota or override is recorded here."
    list_display = ("when", "whose", "what", "change", "reason")
    list_filter: ClassVar = [offered("kind"), TENANT, PROVIDER, CAPABILITY, typed("by", help_text="Full name")]
    search_fields = ()
    export_fields = (
        *("id", "tenant_id", "provider_name", "capability", "kind", "from_state", "to_state", "why", "generation"),
        *("at", "until", "by"),
    )

    when = column("when", lambda row: row.at)
    whose = column("capability", lambda row: cells.whose(row.who))
    what = column("kind", lambda row: unbroken(row.kind))
    change = column("change", cells.change)
    reason = column("reason", lambda row: two_lines(row.why or UNKNOWN, row.by and f"by {row.by}"))

    def details(self, request: HttpRequest, row: ProviderEvent) -> dict[str, Any]:
        gate = Gate.objects.filter(**row.who._asdict()).values_list("pk", flat=True).first()
        return {
            "event": row,
            "change": cells.change(row),
            "gate_address": cells.address("providers_gate", gate),
            "events_address": cells.events_address(row.who),
        }
