"""Transactions: find one among a million, see why it is where it is, cancel it, run it again."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Case, CharField, F, Value, When
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from unfold.decorators import display

from engines import transactions, workers
from engines.admin import parts
from engines.admin.parts import Act, CategoryFilter
from engines.admin.replaying import EDIT_BUTTON, REPLAY_BUTTON, REVEAL_BUTTON, ReplayablePage
from engines.core import allowed_actions, explanation, redaction
from engines.core.states import CATEGORY_OF, State
from engines.models import Pipeline, PolicyVersion, TransactionRecord
from engines.reads import executors, explain, filters, timeline
from engines.reads.transactions import describe, list_transactions
from ergon_site.access.console import states, timeline as timelines
from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import UNKNOWN, column, identifier, moment, tag, unbroken, with_note, words
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.lists import choice, choice_of, typed
from ergon_site.access.console.pages import ReasonForm, registered
from ergon_site.access.console.palette import MOST, Found
from ergon_site.access.console.selection import EXPORT, BulkAct
from ergon_site.access.core.durations import exact_span, span
from ergon_site.access.core.roles import Right
from ergon_site.access.core.search_terms import PAYLOAD
from ergon_site.access.database.clock import page_time
from ergon_site.access.keyset import KeysetQuery

AGES = {
    "under-5m": "younger than 5 minutes",
    "under-1h": "younger than an hour",
    "under-1d": "younger than a day",
    "over-1h": "older than an hour",
    "over-1d": "older than a day",
    "over-7d": "older than a week",
}
ENDS = {
    "under-5m": "in the last 5 minutes",
    "under-1h": "in the last hour",
    "under-1d": "in the last day",
    "over-1d": "more than a day ago",
}


def pipelines(request: Any) -> list[Pipeline]:
    """All of them, asked for once in a request."""
    if not hasattr(request, "all_pipelines"):
        request.all_pipelines = list(Pipeline.objects.only("name", "redacted", "summary", "paused_by"))
    found: list[Pipeline] = request.all_pipelines
    return found


PipelineFilter = choice_of("pipeline", lambda request: [(one.name, one.name) for one in pipelines(request)])
WorkerFilter = choice_of(
    "worker", lambda _: [(str(worker.pk), str(worker)) for worker in workers.enrolled()], "current worker"
)
CorrelationFilter = typed("correlation", "correlation id")
CANCEL = Act("Cancel", "cancel", Right.OPERATE)
BULK = (
    BulkAct(
        title="Replay",
        verb="replay",
        past="replayed",
        meaning="Each runs again as a new transaction with the same payload.",
    ),
    BulkAct(
        title="Cancel",
        verb="cancel",
        past="cancelled",
        meaning="Pending ones end now and will not run; of running ones it is requested.",
    ),
    EXPORT,
)
REPLAY = {"title": "Replay the transaction", "description": "The same payload runs again as a new transaction."}


def _between(first: Any, last: Any) -> str:
    return span((last - first).total_seconds()) if first and last else ""


def _word(word: str, at: datetime) -> str:
    return format_html('<span class="ergon-due">{} {}</span>', word, moment(at))


def _cancelled(record: TransactionRecord) -> str:
    is_over = State(record.state).is_final
    return "Cancelled: it will not run." if is_over else "Cancellation requested: it is not tried again."


def _progress(progress: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Bars of what is used up of the attempts and of the time that its policy grants."""
    if progress is None:
        return []
    attempts = {"title": "Attempts", "text": f"{progress['attempts']} of {progress['of']} used"}
    found = [attempts | {"value": progress["attempts"], "max": progress["of"]}]
    if progress["limit"]:
        text = f"{span(progress['seconds'])} of {exact_span(progress['limit'])} used"
        found.append({"title": "Time", "text": text, "value": round(progress["seconds"], 1), "max": progress["limit"]})
    return found


@registered(TransactionRecord)
class TransactionsPage(ReplayablePage):
    related = ("pipeline",)
    detail_template = "console/transaction.html"
    list_before_template = "console/search_note.html"
    empty_text = "They are submitted by the API, by code, by the command submit, by schedules, or on a pipeline's page."
    no_results_text = "Try payload.path:value."
    actions_detail: ClassVar = ("cancel", "replay", "edit", "reveal")
    bulk_kind, bulk_acts = "transaction", BULK
    list_display: ClassVar = (
        *("key", "state_word", "where", "summary", "what", "delivered", "made", "took"),
        *("priority", "correlation"),
    )
    columns_on_request = ("delivered", "priority", "correlation")
    list_filter: ClassVar = [
        *(choice("state", states.choices("transaction", *filters.STATES)), PipelineFilter, CategoryFilter),
        *(choice("age", AGES), choice("ended", ENDS), WorkerFilter, CorrelationFilter),
    ]
    search_names = ("error", "after", "before", PAYLOAD)
    search_help_text = "Id, words of an error, state:failed, payload.order.id:42"
    export_fields: ClassVar = {
        "id": "uid",
        "pipeline": F("pipeline__name"),
        "state": Case(*(When(state=one, then=Value(one.word)) for one in State), output_field=CharField()),
        "category": Case(
            *(When(category=number, then=Value(one.value)) for number, one in CATEGORY_OF.items()),
            output_field=CharField(),
        ),
        **{name: name for name in ("priority", "correlation_id", "attempts", "rescues", "error")},
        **{name: name for name in ("created_at", "available_at", "started_at", "finished_at")},
    }

    key = column("id", lambda record: identifier(record.uid))
    state_word = column("state", lambda record: tag(record.kind, "transaction"))
    where = column("pipeline", lambda record: words(record.pipeline.name))
    summary = column("payload", lambda record: parts.summary(record.summary))
    delivered = column("deliveries", lambda record: record.deliveries)
    made = column("created", lambda record: record.created_at)
    correlation = column("correlation id", lambda record: record.correlation_id)

    @display(description="details")
    def what(self, record: Any) -> str:
        """The error of one that failed, since when one runs, and when and why one that is pending will."""
        match State(record.state):
            case State.PENDING:
                if record.is_due_later:
                    return with_note(_word("due", record.available_at), record.reason)
                return words(record.reason) if record.reason else UNKNOWN
            case State.RUNNING:
                started = _word("started", record.started_at)
                return with_note(started, "cancellation requested") if record.cancel_requested_at else started
        error = record.failure or {}
        told = f"{error.get('type', '')}: {error.get('message', '')}".strip(": ")
        return words(told) if told else UNKNOWN

    @display(description="duration")
    def took(self, record: TransactionRecord) -> str:
        took = _between(record.started_at, record.finished_at)
        return unbroken(took) if took else "–"

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return list_transactions(wanted, pipelines(request))

    def find(self, request: HttpRequest, text: str) -> Iterator[Found]:
        for key, uid, state in filters.first_alike(TransactionRecord, text, MOST):
            yield Found(uid, State(state).word, self.address(key))
        for row in TransactionRecord.objects.only("uid", "state").filter(correlation_id=text).order_by("-id")[:MOST]:
            yield Found(row.uid, f"{row.word}, of this correlation id", self.address(row.pk))

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        known = {pipeline.pk: pipeline for pipeline in pipelines(request)}
        for row in rows:
            row.pipeline = known.get(row.pipeline_id) or row.pipeline
        describe(rows, page_time())
        # Leases are renewed all the time; nobody could follow rows that go by them.
        return sorted(rows, key=lambda row: -row.pk) if request.GET.get("state") == "running" else rows

    def details(self, request: HttpRequest, row: TransactionRecord, *, is_revealed: bool = False) -> dict[str, Any]:
        letter, redacted, state = explain.letter_of(row), row.pipeline.redacted, State(row.state)
        tried, earlier = explain.newest_attempts(row, timelines.shown(request)) if row.fencing_token else ([], 0)
        facts = explain.facts_of(row, letter, tried, is_short=True)
        policy = tried[-1]["policy_version"] if tried else ""
        if not tried and row.policy_version is not None:
            policy = PolicyVersion.objects.select_related("policy").filter(pk=row.policy_version).first() or ""
        trace_id = next((one["trace_id"] for one in reversed(tried) if one["trace_id"]), "")
        relatives = timeline.relatives_of(row)
        own = [parts.attempts(tried, row.pipeline), timeline.around(row, letter, relatives)]
        others = timelines.sources(timeline.ids_of(row, relatives), but="engines")
        replaying = allowed_actions.of_replaying(state, facts["dead_letter"])
        cancelling = allowed_actions.of_cancelling(state, is_requested=row.cancel_requested_at is not None)
        refusals = {REPLAY_BUTTON: replaying, EDIT_BUTTON: replaying, CANCEL: cancelling}
        wait = facts["due_in"] if state is State.PENDING else (facts["attempt"] or {}).get("next_in", 0.0)
        return {
            "record": row,
            "sentence": parts.ticking(explanation.sentence(facts), wait),
            "facts": facts,
            "progress": _progress(facts["progress"]),
            "timeline": timelines.timeline(request, *own, *others, left_out=earlier),
            "policy": str(policy or ""),
            "trace": {"id": trace_id, "address": parts.trace_link(trace_id)},
            "waited": _between(row.created_at, row.started_at),
            "took": _between(row.started_at, row.finished_at),
            "payload": parts.payload(row.payload, redacted, is_revealed=is_revealed),
            "job": executors.job_of(row.pipeline, redaction.redact(row.payload, redacted)),
            "result": None if row.result is None else parts.json_part(row.result),
            "changes": parts.changes(row.payload_changes, [] if is_revealed else redacted),
            "bar": bar(*(act.button(request, row, why) for act, why in refusals.items())),
            "reveal": REVEAL_BUTTON.button(request, row),
        }

    def payload_of(self, row: TransactionRecord) -> tuple[Any, list[str]]:
        return row.payload, row.pipeline.redacted

    def replay_row(self, row: TransactionRecord, *, by: str, reason: str, **edited: Any) -> str:
        new = transactions.replay(row.uid, by=by, reason=reason, **edited)
        return self.address(transactions.find(new.id).pk)

    def reveal_row(self, row: TransactionRecord, *, by: str) -> None:
        transactions.reveal(row.uid, by=by)

    @dialog_action(url_path="replay", permissions=["operate"], dialog=REPLAY)
    def replay(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        row = self.row(request, object_id)
        return self.carry_out_replay(request, form, row, "Replayed: this is the new transaction.")

    cancel = CANCEL.ask(
        "Cancel the transaction",
        "If it is pending, it will not run. If it is running, its handler is asked to end, and it is not tried again.",
        lambda row, **why: transactions.cancel(row.uid, **why),
        _cancelled,
        keep="Keep it",
    )
