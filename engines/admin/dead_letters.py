"""Dead letters: all that is needed to understand one, and what a person can decide about it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action, display

from engines import dead_letters, transactions
from engines.admin import editing, parts
from engines.admin.parts import Act
from engines.admin.transactions import CategoryFilter
from engines.core import allowed_actions, explanation, redaction
from engines.core.states import GroupState, LetterState
from engines.models import DeadLetter, Pipeline, PolicyVersion, TransactionRecord, Worker
from engines.reads import executors, explain
from engines.reads.dead_letters import list_letters
from engines.reads.filters import ListingError
from ergon_site.access.buttons import Button, bar
from ergon_site.access.core.roles import Right
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import Choice, KeysetPage, Typed, identifier, tag, unbroken, words
from ergon_site.access.pages import ReasonForm, actor

KINDS = {"open": "bad", "replayed": "good", "discarded": "warning"}
GROUP_KINDS = {"open": "bad", "regressed": "bad", "muted": "warning", "resolved": "good"}


class LetterStateFilter(Choice):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in LetterState]


class GroupStateFilter(Choice):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in GroupState]


class SourceFilter(Typed):
    title = parameter_name = "source"
    help_text = "The name of a pipeline or provider"


class GroupFilter(Typed):
    title = parameter_name = "group"
    help_text = "Group number"


class LetterColumns:
    """The columns of the list of dead letters."""

    list_display: ClassVar = ("key", "state_word", "where", "what", "kind", "created_at", "settled")
    list_filter: ClassVar = [LetterStateFilter, SourceFilter, CategoryFilter, GroupFilter]
    search_help_text = "A transaction id, or its start"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = {
        "id": "id",
        "transaction": "uid",
        **{name: name for name in ("source", "step", "category", "error_type", "message", "state", "group_id")},
        **{name: name for name in ("created_at", "settled_at", "settled_by", "reason", "replayed_as")},
    }

    @display(description="transaction")
    def key(self, letter: DeadLetter) -> str:
        return identifier(letter.uid)

    @display(description="state")
    def state_word(self, letter: DeadLetter) -> str:
        return tag(letter.state, KINDS)

    @display(description="error")
    def what(self, letter: DeadLetter) -> str:
        return words(f"{letter.error_type}: {letter.message}".removesuffix(": "))

    @display(description="source")
    def where(self, letter: DeadLetter) -> str:
        return words(letter.source)

    @display(description="category")
    def kind(self, letter: DeadLetter) -> str:
        return unbroken(letter.category)

    @display(description="decided by", empty_value="–")
    def settled(self, letter: DeadLetter) -> str:
        return letter.settled_by


REPLAY_BUTTON = Act("Replay", "replay", Right.OPERATE)
EDIT_BUTTON = Act("Edit and replay", "edit", Right.LEAD, is_dialog=False)
DISCARD_BUTTON = Act("Discard", "discard", Right.OPERATE)
REVEAL_BUTTON = Act("Reveal", "reveal", Right.OPERATE, is_dialog=False)


def page_context(request: HttpRequest, letter: DeadLetter, *, is_revealed: bool = False) -> dict[str, Any]:
    record = _record(letter)
    pipeline = record.pipeline if record else Pipeline.objects.filter(name=letter.source).first()
    redacted = pipeline.redacted if pipeline else []
    payload = record.payload if record else letter.payload
    attempts = parts.attempts(explain.attempts_of(record), pipeline) if record else []
    details = (letter.details or {}) | _names(letter, attempts)
    return {
        "letter": letter,
        "record": record,
        "sentence": _sentence(letter),
        "attempts": attempts,
        "payload": parts.payload(payload, redacted, is_revealed=is_revealed),
        "job": executors.job_of(pipeline, redaction.redact(payload, redacted)),
        "traceback_title": parts.details_title(pipeline, letter.error_type, letter.traceback),
        "details": {name.replace("_", " "): value for name, value in details.items() if value is not None},
        "trace": {"id": details.get("trace_id"), "address": parts.trace_link(details.get("trace_id"))},
        "replayed_as": _replay(letter),
        "bar": bar(*buttons(request, letter, can_run=pipeline is not None or dead_letters.is_replayable(letter))),
        "reveal": REVEAL_BUTTON.button(request, letter),
    }


def buttons(request: HttpRequest, letter: DeadLetter, *, can_run: bool) -> list[Button]:
    state = LetterState(letter.state)
    running, settling = (
        allowed_actions.of_settling(state, can_run=can_run),
        allowed_actions.of_settling(state, can_run=True),
    )
    refusal = {REPLAY_BUTTON: running, EDIT_BUTTON: running, DISCARD_BUTTON: settling}
    return [act.button(request, letter, why) for act, why in refusal.items()]


def _record(letter: DeadLetter) -> TransactionRecord | None:
    if letter.transaction_id is None:
        return None
    return TransactionRecord.objects.select_related("pipeline").filter(pk=letter.transaction_id).first()


def _names(letter: DeadLetter, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    """The policy version and the worker by name: of its last attempt, or asked for where none is kept."""
    if attempts:
        return {name: attempts[-1][name] for name in ("policy_version", "worker")}
    version = PolicyVersion.objects.select_related("policy").filter(pk=letter.details.get("policy_version"))
    worker = Worker.objects.filter(pk=letter.details.get("worker"))
    return {"policy_version": version.first(), "worker": worker.first()}


def _replay(letter: DeadLetter) -> TransactionRecord | None:
    if not letter.replayed_as:
        return None
    return TransactionRecord.objects.only("uid", "state").filter(uid=letter.replayed_as).first()


def _sentence(letter: DeadLetter) -> str:
    now = timezone.now()
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


REPLAY = {
    "title": "Replay the dead letter",
    "description": "Its payload runs again as a new transaction.",
}
DISCARD = {
    "title": "Discard the dead letter",
    "description": "It is closed and will not be replayed. Nothing is deleted.",
}


@admin.register(DeadLetter)
class LettersPage(LetterColumns, KeysetPage, DetailPage):
    detail_template = "console/dead_letter.html"
    list_before_template = "console/groups_link.html"
    actions_detail: ClassVar = ("replay", "edit", "discard", "reveal")

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeadLetter]:
        rows: QuerySet[DeadLetter] = super().get_queryset(request)
        return rows.select_related("group")

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        try:
            return list_letters(wanted)
        except ListingError as error:
            raise IncorrectLookupParameters from error

    def details(self, request: HttpRequest, row: DeadLetter) -> dict[str, Any]:
        return page_context(request, row)

    @dialog_action(url_path="replay", permissions=["operate"], dialog=REPLAY)
    def replay(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        letter, why = self.row(request, object_id), form.cleaned_data["reason"]

        def verb() -> str:
            return self._page_of(transactions.replay_letter(letter.pk, by=actor(request), reason=why), letter)

        told = "Replayed: this is the new transaction." if letter.transaction_id else "Replayed."
        return parts.carry_out(request, verb, told, self.address(letter.pk))

    @action(url_path="edit", permissions=["lead"])
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        letter = self.row(request, object_id)

        def verb(payload: Any, reason: str) -> str:
            new = transactions.replay_letter(letter.pk, by=actor(request), reason=reason, payload=payload)
            return self._page_of(new, letter)

        payload, redacted = dead_letters.payload_of(letter), dead_letters.redacted_of(letter)
        return editing.view(self, request, editing.Subject(letter, self.address(letter.pk), payload, redacted, verb))

    @dialog_action(url_path="discard", permissions=["operate"], dialog=DISCARD)
    def discard(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        letter, why = self.row(request, object_id), form.cleaned_data["reason"]

        def verb() -> None:
            dead_letters.discard(letter.pk, by=actor(request), reason=why)

        return parts.carry_out(request, verb, "Discarded: it will not be replayed.", self.address(letter.pk))

    @action(url_path="reveal", permissions=["operate"])
    def reveal(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        letter = self.row(request, object_id)
        dead_letters.reveal(letter.pk, by=actor(request))
        shown = page_context(request, letter, is_revealed=True)
        return self.page(request, self.detail_template, str(letter), letter, **shown)

    def _page_of(self, uid: str, letter: DeadLetter) -> str:
        """The page of the transaction that a letter became; its own, if that is none of ours."""
        record = TransactionRecord.objects.only("pk").filter(uid=uid).first()
        return (
            reverse("admin:engines_transactionrecord_change", args=[record.pk]) if record else self.address(letter.pk)
        )
