"""Attempts: every call that was made or refused, found by what it was for."""

from typing import Any, ClassVar

from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from ergon_site.access.console import timeline as timelines
from ergon_site.access.console.cells import column, milliseconds, two_lines
from ergon_site.access.console.lists import typed
from ergon_site.access.console.pages import registered
from providers.admin import cells
from providers.admin.lists import CAPABILITY, PROVIDER, TENANT, KeysetDetailPage, offered
from providers.models import Gate, ProviderExecutionMetric
from providers.reads import lists

SHOWN = 50


@registered(ProviderExecutionMetric)
class AttemptsPage(KeysetDetailPage):
    looked_for = staticmethod(lists.attempts)
    detail_template = "console/provider_attempt.html"
    empty_text = "Each call to a provider is recorded here."
    list_display = ("made", "whose", "what", "ended", "took")
    list_filter: ClassVar = [
        *(
            offered("outcome", kind="provider attempt"),
            offered("reason"),
            offered("source"),
            TENANT,
            PROVIDER,
            CAPABILITY,
        ),
        typed("correlation", "correlation id"),
        typed("task", "task execution", help_text="Execution number"),
    ]
    search_help_text = "A correlation id"
    export_fields = (
        *("id", "tenant_id", "provider_name", "capability", "operation", "correlation_id", "idempotency_key"),
        *("attempt_number", "max_attempts", "duration_ms", "timeout_budget_ms", "outcome", "reason_code"),
        *("retryable", "retry_suppressed", "http_status", "policy_version", "source", "task_execution_id"),
        *("transaction_id", "created_at"),
    )

    made = column("when", lambda row: row.created_at)

    whose = column("capability", lambda row: cells.whose(row.who))
    what = column("operation", lambda row: two_lines(row.operation, row.correlation_id))
    ended = column("outcome", lambda row: _both(cells.outcome(row), row.reason_code or ""))

    @display(description="duration")
    def took(self, row: ProviderExecutionMetric) -> str:
        return _both(milliseconds(row.duration_ms), f"attempt {row.attempt_number} of {row.max_attempts}")

    def details(self, request: HttpRequest, row: ProviderExecutionMetric) -> dict[str, Any]:
        others = ProviderExecutionMetric.objects.filter(correlation_id=row.correlation_id).order_by("id")[:SHOWN]
        gate = Gate.objects.filter(**row.who._asdict()).values_list("pk", flat=True).first()
        return {
            "attempt": row,
            "outcome": cells.outcome(row),
            "took": milliseconds(row.duration_ms),
            "budget": milliseconds(row.timeout_budget_ms),
            "gate_address": cells.address("providers_gate", gate),
            "task_address": cells.address("providers_taskexecution", row.task_execution_id),
            "correlation_address": cells.correlation_address(row.correlation_id),
            "others": [cells.attempt(one) for one in others],
            "timeline": timelines.timeline(request, *timelines.sources({row.transaction_id or row.correlation_id})),
        }


def _both(text: str, small: str) -> str:
    """Two lines that stay as they are."""
    lines = '<span class="ergon-when">{}</span><span class="ergon-small ergon-when">{}</span>'
    return format_html(f'<div class="ergon-both">{lines}</div>', text, small)
