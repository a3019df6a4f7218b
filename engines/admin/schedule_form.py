"""The form of a new schedule, and the runs that its fields come to."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.http import HttpRequest
from django.utils import timezone
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from engines import schedules
from engines.admin.fields import NameField, Suggestions
from engines.core.errors import EngineError
from engines.models import Pipeline, Schedule
from engines.schedules import Plan
from ergon_site.access.database.clock import database_time
from ergon_site.access.detail import sentence
from ergon_site.access.fields import JsonField, WhyField

RUNS = 5


def _pipelines() -> list[str]:
    return list(Pipeline.objects.values_list("name", flat=True))


class ScheduleForm(forms.Form):
    """The fields of a schedule."""

    name = NameField("schedule", Schedule)
    pipeline = forms.ChoiceField(
        choices=lambda: [(name, name) for name in _pipelines()],
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
        runs(cron, time_zone, timezone.now())
    except EngineError as error:
        raise forms.ValidationError(sentence(error)) from None
    return cron, time_zone


def runs(cron: str, time_zone: str, after: datetime, first: Iterable[datetime] = ()) -> list[datetime]:
    """The next few runs, by the clock of their zone."""
    known = list(first)
    return known + list(islice(schedules.runs_after(cron, time_zone, after), RUNS - len(known)))


def is_late(row: Schedule) -> bool:
    return row.paused_at is None and row.next_run_at < timezone.now() - schedules.PUNCTUAL


def runs_asked(request: HttpRequest) -> dict[str, Any]:
    """The next runs of the schedule in an unsaved form."""
    cron, time_zone = request.POST.get("cron", "")[:100], request.POST.get("time_zone", "UTC")[:64]
    try:
        return {"runs": runs(cron, time_zone, database_time()) if cron else []}
    except EngineError as error:
        return {"wrong": sentence(error)}
