"""Bulk operations: who decided what about which rows, how far it is, and what came of each."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from unfold.decorators import display

from engines.admin.parts import Act, ListedPage
from engines.core import allowed_actions
from engines.dead_letters import bulk, bulk_replays
from engines.models import BulkItem, BulkOperation, TransactionRecord
from engines.reads import dead_letters as lists
from ergon_site.access import keyset
from ergon_site.access.bulk_kinds import bulk_kinds
from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import column, moment, tag, unbroken, with_note, words
from ergon_site.access.console.lists import choice
from ergon_site.access.console.pages import EXPORTS, registered
from ergon_site.access.console.states import choices
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import page_time
from ergon_site.access.keyset import KeysetQuery

SHOWN = 50
PAUSE = Act("Pause", "pause", Right.LEAD)
RESUME = Act("Resume", "resume", Right.LEAD)
CANCEL = Act("Cancel", "cancel", Right.LEAD)
TURNS = {PAUSE: "paused", RESUME: "running", CANCEL: "cancelled"}


def state_of(operation: Any) -> str:
    """The state: an operation that has started all of its replays is done when these have ended."""
    if operation.state != "done" or operation.replays is None:
        return str(operation.state)
    return "finishing" if operation.replays.running else "failures" if operation.replays.failed else "done"


def _ends(replays: Any) -> str:
    """What is to be known of replays besides that they were started."""
    told = {"failed again": replays.failed, "still running": replays.running} if replays is not None else {}
    shown = ", ".join(f"{count:,} {words}" for words, count in told.items() if count)
    return f"; {shown}" if shown else ""


def progress_of(operation: Any) -> str:
    """How far it is: of replays also how many failed again, and how many have not ended."""
    more = "+" if operation.dry_run.get("is_capped") else ""
    done = f"{operation.processed:,} of {min(operation.expected, operation.cap):,}{more}"
    ends = _ends(operation.replays)
    return with_note(done, ends.removeprefix("; ")) if ends else done


def subject_of(operation: BulkOperation) -> dict[str, Any]:
    """What an operation acts on: the rows of a filter or a group, or selected ones."""
    kind, asked = bulk_kinds().get(operation.kind), operation.filter
    noun, nouns = (kind.noun, kind.nouns) if kind else (operation.kind, operation.kind)
    if "where" in asked:
        filters = ", ".join(f"{word}: {text}" for word, text in asked["where"].items())
        return {"noun": noun, "nouns": nouns, "words": f"All {nouns} with {filters or 'no filter'}"}
    count = len(asked.get("ids") or asked.get("groups") or ())
    words = f"{count:,} selected {noun if count == 1 else nouns}"
    if "groups" in asked:
        words = f"Open dead letters of {count:,} selected groups"
    return {"noun": noun, "nouns": nouns, "words": words}


def items_of(operation: BulkOperation, found: Any) -> Any:
    """A page of results, each with the address of its row and how its replay ended."""
    kind, is_there = bulk_kinds().get(operation.kind), operation.verb != "sweep"
    bulk_replays.with_outcomes(operation, found.rows)
    replayed = [item.note for item in found.rows if item.outcome]
    replays = dict(TransactionRecord.objects.filter(uid__in=replayed).values_list("uid", "pk")) if replayed else {}
    for item in found.rows:
        item.replay = replays.get(item.note)
        item.name = item.label or (item.letter.uid if item.letter else item.target)
        key = item.letter_id or item.target
        item.address = ""
        if kind is not None and key and (is_there or item.result != "done"):
            meta = kind.rows().model._meta  # noqa: SLF001 (Django's own way)
            item.address = reverse(f"ergon:{meta.app_label}_{meta.model_name}_change", args=[key])
        item.ended = tag(item.outcome, "replay") if item.outcome else ""
        item.word = bulk_replays.DONE.get(operation.verb, "started")
    return found


def files_of(operation: BulkOperation) -> dict[str, str]:
    """The addresses of the files of an export."""
    kind = bulk_kinds().get(operation.kind)
    if operation.verb != bulk.EXPORT or kind is None:
        return {}
    meta = kind.rows().model._meta  # noqa: SLF001 (Django's own way)
    name = f"ergon:{meta.app_label}_{meta.model_name}_selected_export"
    return {form.upper(): reverse(name, args=[operation.pk, form]) for form in EXPORTS}


def _turn(act: Act, title: str, description: str, keep: str = "") -> Any:
    state = TURNS[act]
    told = f"The operation is {state}."
    return act.ask(title, description, lambda row, **why: bulk.turn(row.pk, state, **why), told, keep)


@registered(BulkOperation)
class BulkPage(ListedPage):
    related = ("group",)
    detail_template = "console/bulk.html"
    live_template = "console/bulk_live.html"
    empty_text = "Acts on many rows at once are recorded here, with the result of each."
    list_display = ("what", "state_word", "who", "why", "progress", "when")
    list_display_links = ("what",)
    list_filter: ClassVar = [choice("state", choices("bulk operation", *dict(BulkOperation.STATES)))]
    search_fields: ClassVar = ()
    export_fields: ClassVar = {
        **{name: name for name in ("id", "kind", "verb", "group_id", "by", "reason", "state", "note")},
        **{name: name for name in ("expected", "cap", "canary", "rate", "done", "skipped", "failed")},
        **{name: name for name in ("replays_succeeded", "replays_failed", "replays_cancelled", "replays_lost")},
        **{name: name for name in ("created_at", "finished_at")},
    }
    actions_detail: ClassVar = ("pause", "resume", "cancel")

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return KeysetQuery(rows=lists.operations(wanted).select_related("group"))

    def decorate(self, request: HttpRequest, rows: list[BulkOperation]) -> Any:
        return bulk_replays.with_figures(rows)

    def live(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        bulk_replays.with_figures([row])
        items = BulkItem.objects.filter(operation=row).select_related("letter").defer("letter__payload")
        found = keyset.paginate(KeysetQuery(rows=items), size=SHOWN, at=request.GET.get("at", ""))
        gone, whole = row.processed, min(row.expected, row.cap)
        turns = (
            act.button(request, row, allowed_actions.of_turning(row.state, wanted)) for act, wanted in TURNS.items()
        )
        subject = subject_of(row)
        noun = subject["noun"] if whole == 1 else subject["nouns"]
        more = "+" if row.dry_run.get("is_capped") else ""
        word = state_of(row)
        begins = "Done" if word == "failures" else capfirst(word)
        return {
            "operation": row,
            "word": word,
            "subject": subject,
            "sentence": f"{begins}: {gone:,} of {whole:,}{more} {noun}{_ends(row.replays)}.",
            "tally": bulk_replays.tally(row, row.replays),
            "cap": f"{row.cap:,}",
            "expected": f"{row.expected:,}{more}",
            "percent": min(100, round(100 * gone / whole)) if whole else 100,
            "items": items_of(row, found),
            "files": files_of(row),
            "bar": bar(*turns),
            "read_at": page_time(),
        }

    details = live

    what = column("operation", lambda operation: words(str(operation)))
    why = column("reason", lambda operation: words(operation.reason))
    state_word = column("state", lambda operation: tag(state_of(operation), "bulk operation"))
    who = column("by", lambda operation: unbroken(operation.by))

    @display(description="started")
    def when(self, operation: BulkOperation) -> str:
        ended = format_html("ended {}", moment(operation.finished_at)) if operation.finished_at else ""
        return with_note(moment(operation.created_at), ended)

    progress = column("progress", progress_of)

    pause = _turn(PAUSE, "Pause the bulk operation", "Nothing more is changed until it is resumed.")
    resume = _turn(RESUME, "Resume the bulk operation", "It continues where it stopped.")
    cancel = _turn(CANCEL, "Cancel the bulk operation", "It ends now. What it has done stays done.", keep="Keep it")
