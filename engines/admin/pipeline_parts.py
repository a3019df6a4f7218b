"""Parts of the pipeline pages: the columns of the list, and the figures of a page."""

from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from engines.admin import links
from engines.admin.pausing import PausableColumns
from engines.core.explanation import span
from engines.models import Pipeline
from engines.reads import explain, pipelines, status
from engines.reads.pipelines import Standing
from ergon_site.access import minutes
from ergon_site.access.database.clock import database_time
from ergon_site.access.pages import ConsoleList

MINUTES = 60
ENDS = {"ok": "succeeded", "bad": "failed"}
MANY = 100
UNKNOWN = "–"


class PipelineList(ConsoleList):
    """The rows of a page of the list, with how each is doing."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        figures = pipelines.of([row.pk for row in rows], database_time())
        for row in rows:
            row.standing = figures[row.pk]
        self.result_list = rows


class PipelineColumns(PausableColumns):
    """Each number leads to the transactions behind it."""

    @display(description="runs", ordering="task")
    def runs(self, row: Any) -> str:
        runs = row.task or f"executor {row.executor}"
        return format_html('<div class="ergon-cell">{}<div class="ergon-why">{}</div></div>', runs, row.direction)

    @display(description="waiting")
    def waiting(self, row: Any) -> str:
        return links.anchor(links.transactions(row.name, "pending"), row.standing.depth)

    @display(description="oldest")
    def oldest(self, row: Any) -> str:
        return age(row.standing)

    @display(description="running")
    def running(self, row: Any) -> str:
        return links.anchor(links.transactions(row.name, "running"), f"{row.standing.running:,}")

    @display(description="rate (1 h)")
    def rate(self, row: Any) -> str:
        return links.anchor(links.transactions(row.name, "succeeded"), per_minute(row.standing))

    @display(description="failure rate (1 h)")
    def failing(self, row: Any) -> str:
        told = share(row.standing)
        return told if row.standing.failing is None else links.anchor(links.transactions(row.name, "failed"), told)

    @display(description="policy", ordering="policy__name")
    def governed_by(self, row: Any) -> str:
        return links.anchor(links.policy(row.policy), f"{row.policy.name} v{row.policy.active.number}")


def age(standing: Standing) -> str:
    if standing.oldest_age is None:
        return UNKNOWN
    return span(standing.oldest_age) if standing.oldest_age >= 0 else f"due in {span(-standing.oldest_age)}"


def per_minute(standing: Standing) -> str:
    rate = standing.per_minute
    return f"{rate:,.0f} / min" if rate >= MANY else f"{rate:.3g} / min"


def share(standing: Standing) -> str:
    return UNKNOWN if standing.failing is None else f"{standing.failing:.1%}"


def live(row: Pipeline) -> dict[str, Any]:
    """The part of a pipeline's page that refreshes itself."""
    now = database_time()
    return {
        "figures": list(_figures(row, pipelines.of([row.pk], now)[row.pk])),
        "chart": minutes.of(status.series(MINUTES, row.pk, now=now), "Finished per minute", ENDS),
        "serving": explain.serving(row),
        "read_at": now,
    }


def _figures(row: Pipeline, standing: Standing) -> Iterator[dict[str, str]]:
    for title, value, state in (
        ("Waiting", standing.depth, "pending"),
        ("Oldest pending", age(standing), "pending"),
        ("Running", f"{standing.running:,}", "running"),
        ("Rate, last hour", per_minute(standing), "succeeded"),
        ("Failure rate, last hour", share(standing), "failed"),
    ):
        yield {
            "title": title,
            "value": value,
            "address": "" if value == UNKNOWN else links.transactions(row.name, state),
        }
