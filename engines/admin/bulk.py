"""Bulk operations: who decided what about which dead letters, how far it is, and what came of each."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from unfold.decorators import display

from engines.admin.parts import Act, ListedPage
from engines.core import allowed_actions
from engines.dead_letters import bulk
from engines.models import BulkItem, BulkOperation, TransactionRecord
from engines.reads import dead_letters as lists
from ergon_site.access import keyset
from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import column, moment, tag, unbroken, with_note, words
from ergon_site.access.console.lists import choice
from ergon_site.access.console.pages import registered
from ergon_site.access.console.states import choices
from ergon_site.access.core.roles import Right
from ergon_site.access.keyset import KeysetQuery

SHOWN = 50
PAUSE = Act("Pause", "pause", Right.LEAD)
RESUME = Act("Resume", "resume", Right.LEAD)
CANCEL = Act("Cancel", "cancel", Right.LEAD)
TURNS = {PAUSE: "paused", RESUME: "running", CANCEL: "cancelled"}


def tally(operation: BulkOperation) -> str:
    """Counts of processed dead letters, and of the outcomes of their replays."""
    rest = f"{operation.skipped:,} skipped, {operation.failed:,} refused"
    if operation.verb != "replay":
        return f"{operation.done:,} discarded, {rest}"
    fates = bulk.fates_of(operation)
    went_well = operation.done - fates.failed - fates.out
    ends = f"{went_well:,} succeeded, {fates.failed:,} failed again, {fates.out:,} not ended yet"
    return f"{operation.done:,} replayed ({ends}), {rest}"


def _turn(act: Act, title: str, description: str, keep: str = "") -> Any:
    state = TURNS[act]
    told = f"The operation is {state}."
    return act.ask(title, description, lambda row, **why: bulk.turn(row.pk, state, **why), told, keep)


@registered(BulkOperation)
class BulkPage(ListedPage):
    audited = r"bulk operation (?P<pk>\d{1,18})"
    related = ("group",)
    detail_template = "console/bulk.html"
    live_template = "console/bulk_live.html"
    list_display = ("what", "state_word", "who", "why", "progress", "when")
    list_display_links = ("what",)
    list_filter: ClassVar = [choice("state", choices("bulk operation"))]
    search_fields: ClassVar = ()
    export_fields: ClassVar = {
        **{name: name for name in ("id", "verb", "group_id", "by", "reason", "state", "note")},
        **{name: name for name in ("expected", "cap", "canary", "rate", "done", "skipped", "failed")},
        **{name: name for name in ("created_at", "finished_at")},
    }
    actions_detail: ClassVar = ("pause", "resume", "cancel")

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return KeysetQuery(rows=lists.operations(wanted).select_related("group"))

    def live(self, request: HttpRequest, row: BulkOperation) -> dict[str, Any]:
        items = BulkItem.objects.filter(operation=row).select_related("letter").defer("letter__payload")
        found = keyset.paginate(KeysetQuery(rows=items), size=SHOWN, at=request.GET.get("at", ""))
        # Each replay shows the state of the transaction that runs in place of its dead letter.
        ids = [item.note for item in found.rows if row.verb == "replay" and item.result == "done"]
        replays = TransactionRecord.objects.filter(uid__in=ids).only("uid", "state") if ids else []
        by_id = {replay.uid: replay for replay in replays}
        for item in found.rows:
            item.replay = by_id.get(item.note)
            item.outcome = tag(item.replay.word, "transaction") if item.replay else ""
        gone, whole = row.processed, min(row.expected, row.cap)
        turns = (
            act.button(request, row, allowed_actions.of_turning(row.state, wanted)) for act, wanted in TURNS.items()
        )
        return {
            "operation": row,
            "sentence": f"{row.state.capitalize()}: {gone:,} of {whole:,} dead letters.",
            "tally": tally(row),
            "cap": f"{row.cap:,}",
            "expected": f"{row.expected:,}",
            "percent": min(100, round(100 * gone / whole)) if whole else 100,
            "items": found,
            "bar": bar(*turns),
            "read_at": timezone.now(),
        }

    details = live

    what = column("what", lambda operation: words(str(operation)))
    why = column("reason", lambda operation: words(operation.reason))
    state_word = column("state", lambda operation: tag(operation.state, "bulk operation"))
    who = column("by", lambda operation: unbroken(operation.by))

    @display(description="begun")
    def when(self, operation: BulkOperation) -> str:
        ended = format_html("ended {}", moment(operation.finished_at)) if operation.finished_at else ""
        return with_note(moment(operation.created_at), ended)

    progress = column("progress", lambda one: f"{one.processed:,} of {min(one.expected, one.cap):,}")

    pause = _turn(PAUSE, "Pause the bulk operation", "No further dead letters are processed until it is resumed.")
    resume = _turn(RESUME, "Resume the bulk operation", "It continues where it stopped.")
    cancel = _turn(
        CANCEL,
        "Cancel the bulk operation",
        "It ends now. Dead letters already processed stay as they are.",
        keep="Keep it",
    )
