"""Dead letters: all that is needed to understand one, and what a person can decide about it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import reverse
from unfold.decorators import action

from engines import dead_letters, transactions
from engines.admin import editing, letter_page, parts
from engines.admin.letter_list import LetterColumns
from engines.models import DeadLetter, TransactionRecord
from engines.reads.dead_letters import list_letters
from engines.reads.filters import ListingError
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import KeysetPage
from ergon_site.access.pages import ReasonForm, actor

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
        return letter_page.of(request, row)

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
        shown = letter_page.of(request, letter, is_revealed=True)
        return self.page(request, self.detail_template, str(letter), letter, **shown)

    def _page_of(self, uid: str, letter: DeadLetter) -> str:
        """The page of the transaction that a letter became; its own, if that is none of ours."""
        record = TransactionRecord.objects.only("pk").filter(uid=uid).first()
        return (
            reverse("admin:engines_transactionrecord_change", args=[record.pk]) if record else self.address(letter.pk)
        )
