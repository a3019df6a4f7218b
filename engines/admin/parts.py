"""Parts that the pages of the engines share: attempts, payloads, buttons, filters, actions that ask for a reason."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from engines.conf import settings
from engines.core import redaction, tracebacks
from engines.core.errors import EngineError, ExceptionType
from engines.core.summary import Field
from engines.core.tracebacks import Part
from engines.models import Pipeline
from engines.reads import executors, timeline
from ergon_site.access.console import json_view
from ergon_site.access.console.buttons import Button
from ergon_site.access.console.cells import UNKNOWN, note
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.lists import KeysetPage, choice
from ergon_site.access.console.pages import ReasonForm, actor, holds
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right, reason_missing
from ergon_site.access.core.timeline import Event

# Ergon's own files: an author looks for the frames of a task.
ROOTS = [f"{Path(__file__).parents[2] / app}/" for app in ("engines", "ergon_site/access", "facts", "providers")]


def attempts(told: Iterable[dict[str, Any]], pipeline: Pipeline | None) -> list[Event]:
    """Attempts as events, each with its folded traceback and a way to its trace."""
    return timeline.of_attempts(
        {
            **one,
            "trace": trace_link(one["trace_id"]),
            "details": title,
            "label": f"{title} of {one['step']} attempt {one['number']}, delivery {one['delivery']}",
            "frames": frames(one["traceback"]),
        }
        for one in told
        for title in [details_title(pipeline, one["error_type"], one["traceback"])]
    )


def frames(text: str | None) -> list[Part]:
    """A traceback whose frames of libraries are folded."""
    return tracebacks.fold(text, ROOTS) if text else []


def ticking(sentence: str, wait: float) -> str:
    """A sentence in which the time until something happens counts down, where scripts run."""
    before, until, after = sentence.partition(f"in {span(wait)}")
    if wait <= 0 or not until:
        return sentence
    return format_html('{}in <span data-countdown="{}">{}</span>{}', before, f"{wait:.1f}", span(wait), after)


def details_title(pipeline: Pipeline | None, error_type: str | None, text: str | None) -> str:
    """The title of the details of a failure: where it was raised, or the last lines of its executor."""
    return "Last lines on the executor's stderr" if executors.is_stderr(pipeline, error_type, text) else "Traceback"


def trace_link(trace_id: str | None) -> str:
    """The address of a trace, if the deployment has configured one."""
    template = settings().trace_url
    return template.replace("{trace_id}", trace_id) if template and trace_id else ""


def payload(whole: Any, redacted: list[str], *, is_revealed: bool) -> dict[str, Any]:
    """A payload as it may be shown, and whether anything of it is hidden."""
    shown = whole if is_revealed else redaction.redact(whole, redacted)
    return {**json_part(shown), "is_redacted": shown != whole, "is_revealed": is_revealed and bool(redacted)}


def json_part(value: Any) -> dict[str, Any]:
    return {"tree": json_view.tree(value), "text": json_view.text(value)}


def summary(fields: list[Field] | None) -> str:
    """A payload in a list: its fields, or that it is too large for that."""
    if not fields:
        return note("large") if fields is None else UNKNOWN
    told = format_html_join(" · ", "<b>{}</b> {}", fields)
    plain = " · ".join(f"{name} {value}".strip() for name, value in fields)
    return format_html('<span class="ergon-summary" title="{}">{}</span>', plain, told)


def changes(entries: Iterable[dict[str, Any]] | None, redacted: list[str]) -> list[dict[str, Any]]:
    """The edited fields, path by path; hidden fields stay hidden."""
    told = []
    for entry in entries or []:
        is_hidden = redaction.covers(redacted, entry["path"])
        texts: dict[str, str] = {
            side: redaction.HIDDEN if is_hidden else json_view.text(entry[side])
            for side in ("before", "after")
            if side in entry
        }
        told.append({"path": entry["path"] or "(all of it)", **texts})
    return told


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a person can do to a row: what the button says, the action behind it, and the right it takes."""

    title: str
    action: str
    right: Right
    is_dialog: bool = True

    def button(self, request: HttpRequest, row: Model, refusal: str = "") -> Button:
        address = reverse(f"ergon:engines_{row._meta.model_name}_{self.action}", args=[row.pk])  # noqa: SLF001
        refusal = refusal if holds(request, self.right) else reason_missing(self.right)
        return Button(title=self.title, address=address, is_dialog=self.is_dialog, refusal=refusal)

    def ask(
        self,
        title: str,
        description: str,
        verb: Callable[..., object],
        success: str | Callable[[Any], str],
        keep: str = "",
    ) -> Any:
        """The action: a dialog asks for a reason, the verb is carried out on the row, and its page is shown again.

        What cannot be taken back says with `keep` what it is not to do it.
        """

        def act(page: DetailPage, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
            row = page.row(request, object_id)

            def decide() -> object:
                return verb(row, by=actor(request), reason=form.cleaned_data["reason"])

            return page.carry_out(request, decide, success, row.pk)

        act.__name__ = self.action
        dialog, permissions = {"title": title, "description": description, "keep": keep}, [self.right.value]
        decorate = dialog_action(description=self.title, url_path=self.action, permissions=permissions, dialog=dialog)
        return decorate(act)


CategoryFilter = choice("category", ExceptionType)


class ListedPage(KeysetPage, DetailPage):
    """A long list by the filters of its table, and a page for each row."""

    refused_by = (EngineError,)
