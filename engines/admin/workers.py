"""Workers: the processes that run transactions, and those that did."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import CharField, DurationField, ExpressionWrapper, F, QuerySet, Value
from django.db.models.functions import Cast, Concat, Now
from django.http import HttpRequest
from django.utils.html import format_html

from engines import workers
from engines.admin import links
from engines.models import Worker
from engines.reads import executors
from ergon_site.access.console import states
from ergon_site.access.console.cells import anchor, column, tag
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.pages import registered
from ergon_site.access.core.durations import exact_span, span


class AliveFilter(admin.SimpleListFilter):
    """Workers that have not ended, silent ones included, unless another filter is chosen."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("alive", "Alive"), *states.choices("worker", "silent", "dead", "stopped").items(), ("all", "All")]

    def choices(self, changelist: Any) -> Any:
        unasked, *others = super().choices(changelist)
        return [{**unasked, "display": "Not ended"}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Worker]) -> QuerySet[Worker]:
        match self.value():
            case None:
                return queryset.filter(state__in=workers.ALIVE)
            case "alive":
                return queryset.filter(pk__in=workers.alive().values("pk"))
            case "silent":
                return queryset.filter(pk__in=workers.silent().values("pk"))
            case "all":
                return queryset
        return queryset.filter(state=self.value())


@registered(Worker)
class WorkersPage(DetailPage):
    detail_template = "console/worker.html"
    empty_title = "No worker is running"
    empty_text = "The command consume starts one."
    list_display = ("process", "standing", "serves", "holds", "left_behind", "ended", "heartbeat", "started")
    list_filter: ClassVar = [AliveFilter]
    search_fields = ("host__startswith",)
    found_by = Concat("host", Value(":"), Cast("pid", CharField()))
    found_mark = F("state")
    search_help_text = "Start of a host name"
    ordering = ("-id",)
    export_fields = (
        *("id", "host", "pid", "state", "pipelines", "in_flight", "abandoned", "settled"),
        *("heartbeat_at", "started_at", "stopped_at", "note"),
    )

    def found_rows(self, request: HttpRequest) -> QuerySet[Worker]:
        return workers.enrolled()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        rows: QuerySet[Worker] = super().get_queryset(request)
        # By the clock that wrote the heartbeats.
        return rows.annotate(age=ExpressionWrapper(Now() - F("heartbeat_at"), output_field=DurationField()))

    process = column("worker", str, ordering="host")

    standing = column("state", lambda worker: tag(standing(worker), "worker"), ordering="state")
    serves = column(
        "pipelines", lambda worker: format_html('<div class="ergon-names">{}</div>', ", ".join(worker.pipelines) or "–")
    )
    holds = column(
        "in flight",
        lambda worker: anchor(links.rows("transactionrecord", worker=worker.pk), worker.in_flight),
        ordering="in_flight",
    )
    left_behind = column("abandoned", lambda worker: worker.abandoned, ordering="abandoned")
    started = column("started", lambda worker: worker.started_at, ordering="started_at")
    ended = column("settled", lambda worker: f"{worker.settled:,}", ordering="settled")
    heartbeat = column("last heartbeat", lambda worker: _ago(worker.age.total_seconds()), ordering="-heartbeat_at")

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        word = standing(row)
        told = {"standing": word, "tag": tag(word, "worker"), "heartbeat": self.heartbeat(row)}
        return {"worker": row, "lease": exact_span(row.lease), "shares": executors.of_worker(row), **told}


def _ago(seconds: float) -> str:
    return f"{span(seconds)} ago" if seconds >= 1 else "now"


def standing(worker: Any) -> str:
    """Its state, or that it has been silent for longer than its lease: it will be noticed as dead."""
    is_silent = worker.state in workers.ALIVE and worker.age.total_seconds() > worker.lease
    return "silent" if is_silent else str(worker.state)
