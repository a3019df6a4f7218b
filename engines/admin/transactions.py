"""Transactions: find one among a million, see why it is where it is, cancel it, run it again."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from unfold.decorators import action

from engines import transactions
from engines.admin import editing, parts, transaction_page
from engines.admin.transaction_filters import pipelines
from engines.admin.transaction_list import TransactionColumns
from engines.models import TransactionRecord
from engines.reads import filters
from engines.reads.transactions import list_transactions
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import KeysetPage
from ergon_site.access.pages import ReasonForm, actor

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
        return transaction_page.of(request, row)

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
        shown = transaction_page.of(request, record, is_revealed=True)
        return self.page(request, self.detail_template, str(record), record, **shown)

    def _page_of(self, uid: str) -> str:
        return self.address(transactions.find(uid).pk)
