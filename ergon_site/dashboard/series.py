"""The data of charts: as JSON for the script that draws them, and as tables on a page of their own."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import orjson
from django.apps import apps
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.http import quote_etag, urlencode

from ergon_site.access.console.pages import holds
from ergon_site.access.core import charts as core
from ergon_site.access.core.charts import Chart, Mark, RangeError, Window
from ergon_site.access.core.durations import exact_span
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import database_time
from ergon_site.dashboard import charts, marks

# A chart is as old as this at most; after that the browser asks whether it has changed.
CACHE = "private, max-age=5"
LONGEST_KEY = 18
RANGES = {"15min": "15 min", "hour": "Hour", "day": "Day", "week": "Week"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """The charts of one thing over one window, and what happened meanwhile."""

    title: str
    page: str
    window: Window
    charts: Sequence[Chart]
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model whose rows have charts."""

    app: str
    model: str
    charts: Callable[..., list[Chart]]
    marks: Callable[..., list[Mark]]
    related: tuple[str, ...] = ()

    def row(self, key: str) -> Any:
        if not apps.is_installed(self.app) or not key.isascii() or not key.isdecimal() or len(key) > LONGEST_KEY:
            raise Http404
        rows: Any = apps.get_model(self.app, self.model)._default_manager  # noqa: SLF001 (Django's own way)
        return get_object_or_404(rows.select_related(*self.related), pk=key)


SUBJECTS = {
    "pipeline": Subject(
        app="engines", model="pipeline", charts=charts.of_engines, marks=marks.of_engines, related=("policy",)
    ),
    "provider": Subject(app="providers", model="gate", charts=charts.of_provider, marks=marks.of_provider),
    "boundary": Subject(
        app="facts",
        model="boundary",
        charts=charts.of_boundary,
        marks=marks.of_boundary,
        related=("from_zone", "to_zone"),
    ),
}


def data(request: HttpRequest) -> HttpResponse:
    """The charts as JSON."""
    try:
        plot = _plot(request)
    except RangeError as error:
        return JsonResponse({"error": str(error)}, status=400)
    body = orjson.dumps(
        {
            **asdict(plot.window),
            "charts": [{**asdict(chart), "is_spiky": chart.is_spiky} for chart in plot.charts],
            "marks": [mark._asdict() for mark in plot.marks],
        }
    )
    etag = quote_etag(sha256(body).hexdigest()[:32])
    response = HttpResponse(body, content_type="application/json", headers={"Cache-Control": CACHE, "ETag": etag})
    # What one person may see must not be shown to the next one at the same browser.
    patch_vary_headers(response, ["Cookie"])
    return get_conditional_response(request, etag=etag, response=response) or response


def tables(request: HttpRequest) -> dict[str, Any]:
    """The context of the page with the same numbers as tables."""
    try:
        plot = _plot(request)
    except RangeError as error:
        raise BadRequest(str(error)) from None
    times = [datetime.fromtimestamp(one, UTC) for one in plot.window.times]
    asked = {name: request.GET.get(name, "") for name in ("of", "key")}
    here = reverse("ergon:series_table")
    return {
        "title": f"Charts of {plot.title} as tables",
        "page": plot.page,
        "begins_at": times[0],
        "ends_at": datetime.fromtimestamp(plot.window.ends, UTC),
        "ranges": [(text, f"{here}?{urlencode(asked | {'range': name})}") for name, text in RANGES.items()],
        "tables": [
            {
                "chart": chart,
                "rows": [
                    (at, [_cell(chart, line.values[place]) for line in chart.lines]) for place, at in enumerate(times)
                ],
            }
            for chart in plot.charts
        ],
        "marks": [(datetime.fromtimestamp(mark.at, UTC), mark) for mark in plot.marks],
    }


def _plot(request: HttpRequest) -> Plot:
    if not holds(request, Right.VIEW):
        raise PermissionDenied
    asked = {name: request.GET.get(name, "") for name in ("of", "key", "range", "from", "to")}
    now = database_time().timestamp()
    window = core.window(now, name=asked["range"], begins=asked["from"], ends=asked["to"])
    if asked["of"] == "engines":
        drawn, happened = charts.of_engines(window), marks.of_engines(request, window)
        return Plot(title="all pipelines", page=reverse("ergon:index"), window=window, charts=drawn, marks=happened)
    if asked["of"] not in SUBJECTS:
        raise Http404
    subject = SUBJECTS[asked["of"]]
    row = subject.row(asked["key"])
    page = reverse(f"ergon:{subject.app}_{subject.model}_change", args=[row.pk])
    drawn, happened = subject.charts(window, row), subject.marks(request, window, row)
    return Plot(title=str(row), page=page, window=window, charts=drawn, marks=happened)


def _cell(chart: Chart, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if chart.unit == "count" else exact_span(value)
