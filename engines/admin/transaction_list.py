"""The list of transactions: its filters and columns."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.db.models import Case, CharField, F, Value, When
from django.http import HttpRequest
from unfold.decorators import display

from engines import workers
from engines.core.errors import ExceptionType
from engines.core.explanation import span
from engines.core.states import CATEGORY_OF, State
from engines.models import Pipeline, TransactionRecord
from ergon_site.access.lists import Choice, Typed, identifier, tag, words

KINDS = {"pending": "plain", "running": "busy", "succeeded": "good", "failed": "bad", "cancelled": "warning"}
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
    title = "worker that holds it now"
    parameter_name = "worker"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(worker.pk), str(worker)) for worker in workers.enrolled()]


class CorrelationFilter(Typed):
    title = "correlation id"
    parameter_name = "correlation"


class TransactionColumns:
    """What the list shows of each transaction."""

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
        error = record.error or {}
        return words(f"{error.get('type', '')}: {error.get('message', '')}".strip(": ") or "–")

    @display(description="took")
    def took(self, record: TransactionRecord) -> str:
        if record.started_at is None or record.finished_at is None:
            return "–"
        return span((record.finished_at - record.started_at).total_seconds())
