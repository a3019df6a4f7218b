"""The list of transactions: its columns."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.db.models import Case, CharField, F, Value, When
from unfold.decorators import display

from engines.admin.transaction_filters import (
    AgeFilter,
    CategoryFilter,
    CorrelationFilter,
    EndFilter,
    PipelineFilter,
    StateFilter,
    WorkerFilter,
)
from engines.core.explanation import span
from engines.core.states import CATEGORY_OF, State
from engines.models import TransactionRecord
from ergon_site.access.lists import identifier, tag, unbroken, words

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
