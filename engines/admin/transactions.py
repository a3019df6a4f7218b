"""Transactions: find one among a million, see why it is where it is, cancel it, run it again."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Case, CharField, F, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from unfold.decorators import action, display

from engines import transactions, workers
from engines.admin import editing, parts
from engines.admin.parts import Act
from engines.core import allowed_actions, explanation, redaction
from engines.core.errors import ExceptionType
from engines.core.explanation import span
from engines.core.states import CATEGORY_OF, State
from engines.models import Pipeline, PolicyVersion, TransactionRecord
from engines.reads import executors, explain, filters
from engines.reads.transactions import list_transactions
from ergon_site.access.buttons import Button, bar
from ergon_site.access.core.roles import Right
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import Choice, KeysetPage, Typed, identifier, tag, unbroken, words
from ergon_site.access.pages import ReasonForm, actor

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
        request.all_pipelines = list(Pipeline.objects.only("name", "redacted"))
    found: list[Pipeline] = request.all_pipelines
    return found


class StateFilter(Choice):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.word, state.word) for state in State]


class PipelineFilter(Choice):
    title = parameter_name = "pipeline"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(pipeline.name, pipeline.name) for pipeline in pipelines(request)]


class CategoryFilter(Choice):
    title = parameter_name = "category"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(category.value, category.value) for category in ExceptionType]


class AgeFilter(Choice):
    title = parameter_name = "age"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(AGES.items())


class EndFilter(Choice):
    title = parameter_name = "ended"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(ENDS.items())


class WorkerFilter(Choice):
    title = "current worker"
    parameter_name = "worker"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(worker.pk), str(worker)) for worker in workers.enrolled()]


class CorrelationFilter(Typed):
    title = "correlation id"
    parameter_name = "correlation"


KINDS = {"pending": "plain", "running": "busy", "succeeded": "good", "failed": "bad", "cancelled": "warning"}


class TransactionColumns:
    """The columns of the list of transactions."""

    list_display: ClassVar = ("key", "state_word", "where", "what", "attempts", "created_at", "took")
    list_filter: ClassVar = [
        *(StateFilter, PipelineFilter, CategoryFilter),
        *(AgeFilter, EndFilter, WorkerFilter, CorrelationFilter),
    ]
    search_help_text = "Id, correlation id, or payload.order.id:42"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = {
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

    @display(description="id")
    def key(self, record: TransactionRecord) -> str:
        return identifier(record.uid)

    @display(description="state")
    def state_word(self, record: TransactionRecord) -> str:
        return tag(record.word, KINDS)

    @display(description="pipeline")
    def where(self, record: TransactionRecord) -> str:
        return words(record.pipeline.name)

    @display(description="error")
    def what(self, record: TransactionRecord) -> str:
        error = record.failure or {}
        return words(f"{error.get('type', '')}: {error.get('message', '')}".strip(": ") or "–")

    @display(description="took")
    def took(self, record: TransactionRecord) -> str:
        if record.started_at is None or record.finished_at is None:
            return "–"
        return unbroken(span((record.finished_at - record.started_at).total_seconds()))


CANCEL_BUTTON = Act("Cancel", "cancel", Right.OPERATE)
REPLAY_BUTTON = Act("Replay", "replay", Right.OPERATE)
EDIT_BUTTON = Act("Edit and replay", "edit", Right.LEAD, is_dialog=False)
REVEAL_BUTTON = Act("Reveal", "reveal", Right.OPERATE, is_dialog=False)


def page_context(request: HttpRequest, record: TransactionRecord, *, is_revealed: bool = False) -> dict[str, Any]:
    facts = explain.facts_of(record)
    attempts = parts.attempts(explain.attempts_of(record), record.pipeline)
    redacted, family = record.pipeline.redacted, _family(record)
    trace_id = next((one["trace_id"] for one in reversed(attempts) if one["trace_id"]), "")
    return {
        "record": record,
        "sentence": explanation.sentence(facts),
        "facts": facts,
        "attempts": attempts,
        "policy": attempts[-1]["policy_version"] if attempts else _policy(record),
        "trace": {"id": trace_id, "address": parts.trace_link(trace_id)},
        "waited": _between(record.created_at, record.started_at),
        "took": _between(record.started_at, record.finished_at),
        "payload": parts.payload(record.payload, redacted, is_revealed=is_revealed),
        "job": executors.job_of(record.pipeline, redaction.redact(record.payload, redacted)),
        "result": None if record.result is None else parts.json_part(record.result),
        "changes": parts.changes(record.payload_changes, [] if is_revealed else redacted),
        "ancestor": next((one for one in family if one.pk == record.replay_of), None),
        "replays": [one for one in family if one.replay_of == record.pk],
        "bar": bar(*buttons(request, record, facts["dead_letter"])),
        "reveal": REVEAL_BUTTON.button(request, record),
    }


def buttons(request: HttpRequest, record: TransactionRecord, letter: str | None) -> list[Button]:
    state = State(record.state)
    replaying = allowed_actions.of_replaying(state, letter)
    refusal = {REPLAY_BUTTON: replaying, EDIT_BUTTON: replaying, CANCEL_BUTTON: allowed_actions.of_cancelling(state)}
    return [act.button(request, record, why) for act, why in refusal.items()]


def _family(record: TransactionRecord) -> list[TransactionRecord]:
    """The transaction that it replays, and its own replays."""
    relatives = TransactionRecord.objects.filter(Q(pk=record.replay_of or 0) | Q(replay_of=record.pk))
    return list(relatives.only("uid", "state", "replay_of", "created_at").order_by("pk"))


def _policy(record: TransactionRecord) -> str:
    if record.policy_version is None:
        return ""
    return str(PolicyVersion.objects.select_related("policy").filter(pk=record.policy_version).first() or "")


def _between(first: Any, last: Any) -> str:
    return explanation.span((last - first).total_seconds()) if first and last else ""


CANCEL = {"title": "Cancel the transaction", "description": "It has not started and will not run."}
REPLAY = {
    "title": "Replay the transaction",
    "description": "The same payload runs again as a new transaction.",
}


@admin.register(TransactionRecord)
class TransactionsPage(TransactionColumns, KeysetPage, DetailPage):
    detail_template = "console/transaction.html"
    list_before_template = "console/search_note.html"
    actions_detail: ClassVar = ("cancel", "replay", "edit", "reveal")

    def get_queryset(self, request: HttpRequest) -> QuerySet[TransactionRecord]:
        rows: QuerySet[TransactionRecord] = super().get_queryset(request)
        return rows.select_related("pipeline")

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        known = pipelines(request)
        try:
            return list_transactions(filters.parse(wanted, known), known)
        except filters.ListingError as error:
            raise IncorrectLookupParameters from error

    def decorate(self, request: HttpRequest, rows: list[TransactionRecord]) -> list[TransactionRecord]:
        known = {pipeline.pk: pipeline for pipeline in pipelines(request)}
        for row in rows:
            row.pipeline = known.get(row.pipeline_id) or row.pipeline
        return rows

    def details(self, request: HttpRequest, row: TransactionRecord) -> dict[str, Any]:
        return page_context(request, row)

    @dialog_action(url_path="cancel", permissions=["operate"], dialog=CANCEL)
    def cancel(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        record, why = self.row(request, object_id), form.cleaned_data["reason"]

        def verb() -> None:
            transactions.cancel(record.uid, by=actor(request), reason=why)

        return parts.carry_out(request, verb, "Cancelled: it will not run.", self.address(record.pk))

    @dialog_action(url_path="replay", permissions=["operate"], dialog=REPLAY)
    def replay(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        record, why = self.row(request, object_id), form.cleaned_data["reason"]

        def verb() -> str:
            return self._page_of(transactions.replay(record.uid, by=actor(request), reason=why).id)

        return parts.carry_out(request, verb, "Replayed: this is the new transaction.", self.address(record.pk))

    @action(url_path="edit", permissions=["lead"])
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = self.row(request, object_id)

        def verb(payload: Any, reason: str) -> str:
            return self._page_of(transactions.replay(record.uid, by=actor(request), reason=reason, payload=payload).id)

        subject = editing.Subject(record, self.address(record.pk), record.payload, record.pipeline.redacted, verb)
        return editing.view(self, request, subject)

    @action(url_path="reveal", permissions=["operate"])
    def reveal(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        record = self.row(request, object_id)
        transactions.reveal(record.uid, by=actor(request))
        shown = page_context(request, record, is_revealed=True)
        return self.page(request, self.detail_template, str(record), record, **shown)

    def _page_of(self, uid: str) -> str:
        return self.address(transactions.find(uid).pk)
