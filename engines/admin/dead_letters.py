"""Dead letters: all that is needed to understand one, and what a person can decide about it."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from engines import dead_letters, transactions
from engines.admin import parts
from engines.admin.parts import Act, CategoryFilter
from engines.admin.replaying import EDIT_BUTTON, REPLAY_BUTTON, REVEAL_BUTTON, ReplayablePage
from engines.core import allowed_actions, explanation, redaction
from engines.core.states import LetterState
from engines.models import DeadLetter, Pipeline, PolicyVersion, TransactionRecord, Worker
from engines.reads import executors, explain, filters, timeline
from engines.reads.dead_letters import list_letters
from ergon_site.access.console import states, timeline as timelines
from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import column, identifier, tag, unbroken, words
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.lists import choice, typed
from ergon_site.access.console.pages import ReasonForm, registered
from ergon_site.access.console.palette import MOST, Found
from ergon_site.access.console.selection import EXPORT, BulkAct
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import page_time
from ergon_site.access.keyset import KeysetQuery

DISCARD = Act("Discard", "discard", Right.OPERATE)
BULK = (
    BulkAct(
        title="Replay", verb="replay", past="replayed", meaning="The payload of each runs again as a new transaction."
    ),
    BulkAct(
        title="Discard",
        verb="discard",
        past="discarded",
        meaning="They are closed and will not be replayed. Nothing is deleted.",
    ),
    EXPORT,
)
REPLAY = {"title": "Replay the dead letter", "description": "Its payload runs again as a new transaction."}


SourceFilter = typed("source", help_text="The name of a pipeline or provider")
GroupFilter = typed("group", help_text="Group number")


def _names(letter: DeadLetter, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    """The policy version and the worker by name: of its last attempt, or asked for where none is kept."""
    if attempts:
        return {name: attempts[-1][name] for name in ("policy_version", "worker")}
    version = PolicyVersion.objects.select_related("policy").filter(pk=letter.details.get("policy_version"))
    worker = Worker.objects.filter(pk=letter.details.get("worker"))
    return {"policy_version": version.first(), "worker": worker.first()}


def _sentence(letter: DeadLetter) -> str:
    now = page_time()
    return explanation.of_letter(
        {
            "state": letter.state,
            "step": letter.step,
            "category": letter.category,
            "age": (now - letter.created_at).total_seconds(),
            "settled_by": letter.settled_by,
            "settled_ago": (now - letter.settled_at).total_seconds() if letter.settled_at else 0.0,
            "reason": letter.reason,
        }
    )


@registered(DeadLetter)
class LettersPage(ReplayablePage):
    related = ("group",)
    detail_template = "console/dead_letter.html"
    list_before_template = "console/groups_link.html"
    empty_text = "Transactions that fail for good are kept here until somebody replays or discards them."
    actions_detail: ClassVar = ("replay", "edit", "discard", "reveal")
    bulk_kind, bulk_acts = "dead_letter", BULK
    list_display: ClassVar = ("key", "state_word", "where", "what", "kind", "made", "settled")
    list_filter: ClassVar = [choice("state", states.choices("dead letter")), SourceFilter, CategoryFilter, GroupFilter]
    search_names = ("error",)
    search_help_text = "A transaction id, or its start"
    export_fields: ClassVar = {
        "id": "id",
        "transaction": "uid",
        **{name: name for name in ("source", "step", "category", "error_type", "message", "state", "group_id")},
        **{name: name for name in ("created_at", "settled_at", "settled_by", "reason", "replayed_as")},
    }

    key = column("transaction", lambda letter: identifier(letter.uid))
    state_word = column("state", lambda letter: tag(letter.state, "dead letter"))
    what = column("error", lambda letter: words(f"{letter.error_type}: {letter.message}".removesuffix(": ")))
    where = column("source", lambda letter: words(letter.source))
    kind = column("category", lambda letter: unbroken(letter.category))
    made = column("created", lambda letter: letter.created_at)
    settled = column("decided by", lambda letter: letter.settled_by, empty_value="–")

    def find(self, request: HttpRequest, text: str) -> Iterator[Found]:
        for key, uid, state in filters.first_alike(DeadLetter, text, MOST):
            yield Found(uid, states.label(state, "dead letter"), self.address(key))

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return list_letters(wanted)

    def details(self, request: HttpRequest, row: DeadLetter, *, is_revealed: bool = False) -> dict[str, Any]:
        records = TransactionRecord.objects.select_related("pipeline")
        record = records.filter(pk=row.transaction_id).first() if row.transaction_id is not None else None
        pipeline = record.pipeline if record else Pipeline.objects.filter(name=row.source).first()
        redacted = pipeline.redacted if pipeline else []
        payload = record.payload if record else row.payload
        tried, earlier = explain.newest_attempts(record, timelines.shown(request)) if record else ([], 0)
        details = (row.details or {}) | _names(row, tried)
        if record is None:
            known = timelines.sources({row.uid})
        else:
            relatives = timeline.relatives_of(record)
            others = timelines.sources(timeline.ids_of(record, relatives), but="engines")
            known = [parts.attempts(tried, pipeline), timeline.around(record, row, relatives), *others]
        state, can_run = LetterState(row.state), pipeline is not None or dead_letters.is_replayable(row)
        running = allowed_actions.of_settling(state, can_run=can_run, is_whole=dead_letters.is_whole(row))
        editing = allowed_actions.of_settling(state, can_run=can_run)
        settling = allowed_actions.of_settling(state, can_run=True)
        refusals = {REPLAY_BUTTON: running, EDIT_BUTTON: editing, DISCARD: settling}
        replays = TransactionRecord.objects.only("uid", "state").filter(uid=row.replayed_as)
        return {
            "letter": row,
            "record": record,
            "sentence": _sentence(row),
            "timeline": timelines.timeline(request, *known, left_out=earlier),
            "payload": parts.payload(payload, redacted, is_revealed=is_revealed),
            "job": executors.job_of(pipeline, redaction.redact(payload, redacted)),
            "frames": parts.frames(row.traceback),
            "traceback_title": parts.details_title(pipeline, row.error_type, row.traceback),
            "details": {name.replace("_", " "): value for name, value in details.items() if value is not None},
            "trace": {"id": details.get("trace_id"), "address": parts.trace_link(details.get("trace_id"))},
            "replayed_as": replays.first() if row.replayed_as else None,
            "bar": bar(*(act.button(request, row, why) for act, why in refusals.items())),
            "reveal": REVEAL_BUTTON.button(request, row),
        }

    def payload_of(self, row: DeadLetter) -> tuple[Any, list[str]]:
        return dead_letters.payload_of(row), dead_letters.redacted_of(row)

    def replay_row(self, row: DeadLetter, *, by: str, reason: str, **edited: Any) -> str:
        uid = transactions.replay_letter(row.pk, by=by, reason=reason, **edited)
        record = TransactionRecord.objects.only("pk").filter(uid=uid).first()
        # What another source replays has no page here.
        return reverse("ergon:engines_transactionrecord_change", args=[record.pk]) if record else self.address(row.pk)

    def reveal_row(self, row: DeadLetter, *, by: str) -> None:
        dead_letters.reveal(row.pk, by=by)

    @dialog_action(url_path="replay", permissions=["operate"], dialog=REPLAY)
    def replay(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        row = self.row(request, object_id)
        told = "Replayed: this is the new transaction." if row.transaction_id else "Replayed."
        return self.carry_out_replay(request, form, row, told)

    discard = DISCARD.ask(
        "Discard the dead letter",
        "It is closed and will not be replayed. Nothing is deleted.",
        lambda row, **why: dead_letters.discard(row.pk, **why),
        "Discarded: it will not be replayed.",
        keep="Keep it",
    )
