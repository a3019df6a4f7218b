"""Schedules: what is submitted when, and pausing and resuming it."""

import json
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from engines import schedules
from engines.admin import links
from engines.admin.forms import NameField, Suggestions
from engines.admin.pausing import PAUSE, RESUME, PausablePage, PausedFilter, by_name, turn_of
from engines.core.errors import EngineError
from engines.models import Pipeline, Schedule, TransactionRecord
from engines.schedules import Plan
from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import anchor, column, moment, tag
from ergon_site.access.console.fields import JsonField, WhyField
from ergon_site.access.console.pages import registered
from ergon_site.access.core.texts import sentence
from ergon_site.access.database.clock import database_time, page_time

RUNS = 5
MADE = 10


class ScheduleForm(forms.Form):
    name = NameField("schedule", Schedule)
    pipeline = forms.ChoiceField(
        choices=lambda: [(name, name) for name in Pipeline.objects.values_list("name", flat=True)],
        widget=UnfoldAdminSelectWidget,
        help_text="The pipeline that each run submits to.",
    )
    cron = forms.CharField(
        max_length=100,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off", "placeholder": "30 6 * * 1-5"}),
        help_text="Minute, hour, day of month, month, day of week.",
    )
    time_zone = forms.CharField(
        max_length=64,
        initial="UTC",
        widget=Suggestions(lambda: sorted(available_timezones())),
        help_text="The time zone of the cron expression, such as Europe/Berlin.",
    )
    payload = JsonField(rows=6, max_length=2_000_000, initial={}, help_text="The payload of each transaction, as JSON.")
    catch_up = forms.ChoiceField(
        label="Missed runs",
        choices=Schedule.CATCH_UP,
        widget=UnfoldAdminSelectWidget,
        help_text="What to do with runs that were missed while maintenance was down.",
    )
    reason = WhyField()

    def clean_cron(self) -> str:
        return _possible(self.cleaned_data["cron"], "UTC")[0]

    def clean_time_zone(self) -> str:
        return _possible("* * * * *", self.cleaned_data["time_zone"])[1]

    def plan(self) -> Plan:
        return Plan(**{name: self.cleaned_data[name] for name in Plan.__dataclass_fields__})


def _possible(cron: str, time_zone: str) -> tuple[str, str]:
    """Both as they are, or a refusal in the verb's words."""
    try:
        runs(cron, time_zone, page_time())
    except EngineError as error:
        raise forms.ValidationError(sentence(error)) from None
    return cron, time_zone


def runs(cron: str, time_zone: str, after: datetime) -> list[datetime]:
    """The next few runs, by the clock of their zone."""
    return list(islice(schedules.runs_after(cron, time_zone, after), RUNS))


def made(row: Schedule) -> list[TransactionRecord]:
    """The last runs, found by the keys that they were submitted under."""
    if row.last_run_at is None:
        return []
    times = schedules.runs_after(row.cron, row.time_zone, row.last_run_at, backwards=True)
    keys = [schedules.dedupe_key(row, run_at) for run_at in (row.last_run_at, *islice(times, MADE - 1))]
    found = TransactionRecord.objects.filter(pipeline_id=row.pipeline_id, dedupe_key__in=keys)
    return list(found.only("uid", "state", "created_at", "finished_at").order_by("-dedupe_key"))


def is_late(row: Schedule) -> bool:
    return row.paused_at is None and row.next_run_at < page_time() - schedules.PUNCTUAL


@registered(Schedule)
class SchedulesPage(PausablePage):
    related = ("pipeline",)
    bulk_kind = "schedule"
    new = staticmethod(schedules.create)
    detail_template = "console/schedule.html"
    new_title = "New schedule"
    new_form = ScheduleForm
    new_template = "console/schedule_new.html"
    empty_text = "A schedule submits a transaction at the times of a cron expression."
    list_display = ("name", "feeds", "cron", "time_zone", "next_run", "last_run", "state")
    list_filter: ClassVar = [PausedFilter, "pipeline"]
    search_fields = ("name__startswith", "pipeline__name__startswith")
    search_help_text = "Start of a schedule or pipeline name"
    actions_detail = ("pause", "resume")
    export_fields = ("name", "pipeline__name", "cron", "time_zone", "catch_up", "next_run_at", "last_run_at")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.runs_view)
        return [path("runs/", view, name="engines_schedule_runs"), *super().get_urls()]

    feeds = column(
        "pipeline", lambda row: anchor(links.pipeline(row.pipeline), row.pipeline), ordering="pipeline__name"
    )

    last_run = column("last run", lambda row: row.last_run_at, ordering="last_run_at", empty_value="never")

    @display(description="next run", ordering="next_run_at")
    def next_run(self, row: Schedule) -> str:
        """When, by the clock of everybody; marked if that has passed."""
        time = moment(row.next_run_at)
        return format_html("{} {}", time, tag("late", "schedule")) if is_late(row) else time

    def details(self, request: HttpRequest, row: Schedule) -> dict[str, Any]:
        first = row.next_run_at.astimezone(ZoneInfo(row.time_zone))
        return {
            "bar": bar(turn_of(row).button(request, row)),
            "runs": [first, *runs(row.cron, row.time_zone, first)][:RUNS],
            "made": made(row),
            "is_late": is_late(row),
            "pipeline_address": links.pipeline(row.pipeline),
            "payload": None if row.pipeline.redacted else json.dumps(row.payload, indent=2, ensure_ascii=False),
        }

    pause = PAUSE.ask(
        "Pause the schedule",
        "No runs start until the schedule is resumed.",
        by_name(schedules.pause),
        "Paused: no runs start until the schedule is resumed.",
    )
    resume = RESUME.ask(
        "Resume the schedule",
        "It continues with its next run; missed runs are not made up.",
        by_name(schedules.resume),
        "Resumed: it continues with its next run.",
    )

    def new_context(self, request: HttpRequest) -> dict[str, Any]:
        """The next runs of the schedule in an unsaved form."""
        cron, time_zone = request.POST.get("cron", "")[:100], request.POST.get("time_zone", "UTC")[:64]
        try:
            return {"runs": runs(cron, time_zone, database_time()) if cron else []}
        except EngineError as error:
            return {"wrong": sentence(error)}

    def runs_view(self, request: HttpRequest) -> HttpResponse:
        """The next runs, as the form has it now."""
        return TemplateResponse(request, "console/schedule_runs.html", self.new_context(request))
