"""The filters of lists of transactions."""

from typing import Any

from django.http import HttpRequest

from engines import workers
from engines.core.errors import ExceptionType
from engines.core.states import State
from engines.models import Pipeline
from ergon_site.access.lists import Choice, Typed

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
