"""The context of a bulk operation's page."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from engines import bulk
from engines.admin.parts import Act
from engines.admin.transaction_list import KINDS
from engines.core import allowed_actions
from engines.core.states import State
from engines.models import BulkItem, BulkOperation, TransactionRecord
from ergon_site.access import keyset
from ergon_site.access.buttons import bar
from ergon_site.access.core.roles import Right
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import tag

SHOWN = 50
TURNS = {
    Act("Pause", "pause", Right.LEAD): "paused",
    Act("Resume", "resume", Right.LEAD): "running",
    Act("Cancel", "cancel", Right.LEAD): "cancelled",
}


def of(request: HttpRequest, operation: BulkOperation) -> dict[str, Any]:
    items = BulkItem.objects.filter(operation=operation).select_related("letter").defer("letter__payload")
    found = keyset.paginate(KeysetQuery(rows=items), size=SHOWN, at=request.GET.get("at", ""))
    _add_outcomes(operation, found.rows)
    gone = operation.done + operation.skipped + operation.failed
    whole = min(operation.expected, operation.cap)
    turns = [
        act.button(request, operation, allowed_actions.of_turning(operation.state, wanted))
        for act, wanted in TURNS.items()
    ]
    return {
        "operation": operation,
        "sentence": f"{operation.state.capitalize()}: {gone:,} of {whole:,} dead letters.",
        "tally": tally(operation),
        "cap": f"{operation.cap:,}",
        "expected": f"{operation.expected:,}",
        "percent": min(100, round(100 * gone / whole)) if whole else 100,
        "items": found,
        "bar": bar(*turns),
        "read_at": timezone.now(),
    }


def tally(operation: BulkOperation) -> str:
    """Counts of processed dead letters, and of the outcomes of their replays."""
    rest = f"{operation.skipped:,} skipped, {operation.failed:,} refused"
    if operation.verb != "replay":
        return f"{operation.done:,} discarded, {rest}"
    fates = bulk.fates_of(operation)
    went_well = operation.done - fates.failed - fates.out
    ends = f"{went_well:,} succeeded, {fates.failed:,} failed again, {fates.out:,} not ended yet"
    return f"{operation.done:,} replayed ({ends}), {rest}"


def _add_outcomes(operation: BulkOperation, rows: Sequence[Any]) -> None:
    """To each replay the state of the transaction that runs in place of its dead letter."""
    ids = [item.note for item in rows if operation.verb == "replay" and item.result == "done"]
    states = dict(TransactionRecord.objects.filter(uid__in=ids).values_list("uid", "state")) if ids else {}
    for item in rows:
        item.outcome = tag(State(states[item.note]).word, KINDS) if item.note in states else ""
