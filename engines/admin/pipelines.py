"""Pipelines: what each is and how it is doing."""

from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from unfold.decorators import action, display

from engines import pipelines, transactions
from engines.admin import links
from engines.admin.forms import EditPipelineForm, NewPipelineForm, TrialForm
from engines.admin.parts import Act
from engines.admin.pausing import PAUSE, RESUME, PausablePage, PausedFilter, by_name, turn_of
from engines.models import Pipeline
from engines.reads import explain, status
from engines.reads.status import Standing
from engines.reads.transactions import last_payload
from ergon_site.access.console import drawing
from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import anchor, column, percentage, with_note
from ergon_site.access.console.pages import actor, registered
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import database_time

MANY = 100
UNKNOWN = "–"


def age(standing: Standing) -> str:
    if standing.oldest_age is None:
        return UNKNOWN
    return span(standing.oldest_age) if standing.oldest_age >= 0 else f"due in {span(-standing.oldest_age)}"


def per_minute(standing: Standing) -> str:
    rate = standing.per_minute
    return f"{rate:,.0f} / min" if rate >= MANY else f"{rate:.3g} / min"


def share(standing: Standing) -> str:
    return UNKNOWN if standing.failing is None else percentage(100 * standing.failing)


def trend(standing: Standing) -> str:
    most = max(standing.trend, default=0)
    ended = standing.succeeded + standing.failed
    label = f"{ended:,} finished, at most {most:,} in 5 minutes" if most else "none finished"
    return drawing.sparkline(standing.trend, label, kind="ok")


def live_part(row: Pipeline) -> dict[str, Any]:
    """The part of a pipeline's page that refreshes itself."""
    now = database_time()
    standing = status.statuses([row.pk], now)[row.pk]
    shown = (
        ("Waiting", standing.depth, "pending"),
        ("Oldest pending", age(standing), "pending"),
        ("Running", f"{standing.running:,}", "running"),
        ("Rate, last hour", per_minute(standing), "succeeded"),
        ("Failure rate, last hour", share(standing), "failed"),
    )
    return {
        "figures": [
            {"title": title, "value": value, "address": "" if value == UNKNOWN else links.transactions(row.name, state)}
            for title, value, state in shown
        ],
        "pipeline": row,
        "serving": explain.serving(row),
        "read_at": now,
    }


TEST_BUTTON = Act("Submit a test", "submit_test", Right.OPERATE, is_dialog=False)
EDIT_BUTTON = Act("Edit", "edit", Right.LEAD, is_dialog=False)
TRY = {
    "submit_text": "Submit the test",
    "intro": "The test runs like any other transaction, with all effects of its task.",
}
CHANGE = {
    "submit_text": "Save",
    "intro": "Running consumers apply most changes at their next batch, the rest after a restart.",
}


@registered(Pipeline)
class PipelinesPage(PausablePage):
    related = ("policy__active",)
    bulk_kind = "pipeline"
    new = staticmethod(pipelines.create)
    actions_detail = ("pause", "resume", "submit_test", "edit")
    detail_template = "console/pipeline.html"
    live_template = "console/pipeline_live.html"
    new_title = "New pipeline"
    new_form = NewPipelineForm
    submit_text = "Create pipeline"
    empty_text = "A pipeline connects a task or an executor to a connector and a policy."
    list_display = ("name", "runs", "waiting", "oldest", "running", "rate", "failing", "state", "governed_by")
    columns_on_request = ("runs",)
    list_filter: ClassVar = [PausedFilter, "direction", "policy"]
    search_fields = ("name__startswith", "task__startswith")
    search_help_text = "Start of a name or task"
    export_fields = ("name", "task", "executor", "direction", "connector", "policy__name", "paused_at", "paused_by")

    def decorate(self, request: HttpRequest, rows: Any) -> list[Pipeline]:
        shown = list(rows)
        stands = status.statuses([row.pk for row in shown], database_time())
        for row in shown:
            row.standing = stands[row.pk]
        return shown

    def details(self, request: HttpRequest, row: Pipeline) -> dict[str, Any]:
        return {
            "bar": bar(*(act.button(request, row) for act in (turn_of(row), TEST_BUTTON, EDIT_BUTTON))),
            "policy_address": links.policy(row.policy),
            "schedules": row.schedules.all(),
            **live_part(row),
        }

    def live(self, request: HttpRequest, row: Pipeline) -> dict[str, Any]:
        return live_part(row)

    runs = column("runs", lambda row: with_note(row.task or f"executor {row.executor}", row.direction), ordering="task")

    waiting = column("waiting", lambda row: anchor(links.transactions(row.name, "pending"), row.standing.depth))
    oldest = column("oldest", lambda row: age(row.standing))
    running = column(
        "running", lambda row: anchor(links.transactions(row.name, "running"), f"{row.standing.running:,}")
    )
    rate = column(
        "rate (1 h)",
        lambda row: format_html(
            "{}{}", trend(row.standing), anchor(links.transactions(row.name, "succeeded"), per_minute(row.standing))
        ),
    )

    @display(description="failed (1 h)")
    def failing(self, row: Any) -> str:
        told = share(row.standing)
        return told if row.standing.failing is None else anchor(links.transactions(row.name, "failed"), told)

    governed_by = column(
        "policy",
        lambda row: anchor(links.policy(row.policy), f"{row.policy.name} v{row.policy.active.number}"),
        ordering="policy__name",
    )

    pause = PAUSE.ask(
        "Pause the pipeline",
        "No new transactions are started; running ones finish.",
        by_name(pipelines.pause),
        "Paused: no new transactions start until the pipeline is resumed.",
    )
    resume = RESUME.ask(
        "Resume the pipeline",
        "Pending transactions start again at once.",
        by_name(pipelines.resume),
        "Resumed: pending transactions start again.",
    )

    @action(description="Submit a test", url_path="submit-test", permissions=["operate"])
    def submit_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.row(request, object_id)
        last = None if request.POST else last_payload(row)
        form = TrialForm(request.POST or None, last, row.redacted)

        def submit() -> HttpResponse:
            uid = pipelines.submit_test(row.name, form.cleaned_data["payload"], by=actor(request)).id
            messages.success(request, f"Submitted as {uid}.")
            return redirect(links.transaction(transactions.find(uid)))

        submitted = self.attempt(form, submit)
        return submitted or self.page(request, "console/form.html", f"Test {row}", row, form=form, **TRY)

    @action(description="Edit", url_path="edit", permissions=["change"])
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.row(request, object_id)
        form = EditPipelineForm(request.POST or None, row)

        def amend() -> HttpResponse:
            pipelines.amend(row.name, form.plan(), by=actor(request), reason=form.cleaned_data["reason"])
            messages.success(request, f"The pipeline {row} was changed.")
            return redirect(self.address(row.pk))

        changed = self.attempt(form, amend)
        return changed or self.page(request, "console/form.html", f"Edit {row}", row, form=form, **CHANGE)
