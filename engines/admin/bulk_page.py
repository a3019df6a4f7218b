"""What the page of a bulk operation shows."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from engines.admin.parts import Act
from engines.core import refusals
from engines.models import BulkItem, BulkOperation
from ergon_site.access import keyset
from ergon_site.access.buttons import bar
from ergon_site.access.core.roles import Right
from ergon_site.access.keyset import Lane

SHOWN = 50
TURNS = {
    Act("Pause", "pause", Right.LEAD): "paused",
    Act("Resume", "resume", Right.LEAD): "running",
    Act("Cancel", "cancel", Right.LEAD): "cancelled",
}


def of(request: HttpRequest, operation: BulkOperation) -> dict[str, Any]:
    items = BulkItem.objects.filter(operation=operation).select_related("letter").defer("letter__payload")
    gone = operation.done + operation.skipped + operation.failed
    whole = min(operation.expected, operation.cap)
    turns = [
        act.button(request, operation, refusals.of_turning(operation.state, wanted)) for act, wanted in TURNS.items()
    ]
    return {
        "operation": operation,
        "sentence": f"{operation.state.capitalize()}: {gone:,} of {whole:,} dead letters.",
        "tally": f"{operation.done:,} done, {operation.skipped:,} skipped, {operation.failed:,} failed",
        "cap": f"{operation.cap:,}",
        "expected": f"{operation.expected:,}",
        "percent": min(100, round(100 * gone / whole)) if whole else 100,
        "items": keyset.cut(Lane(rows=items), size=SHOWN, at=request.GET.get("at", "")),
        "bar": bar(*turns),
        "read_at": timezone.now(),
    }
