"""Lists in which rows are selected to act on all of them at once, by a bulk operation.

A list offers what its page names as `bulk_acts`. What is selected, or the filter of the list, is posted to the page of
the act, which shows a dry run and asks for the terms, and then begins the operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from unfold.decorators import display
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminIntegerFieldWidget

from ergon_site.access.conf import declared_by_apps
from ergon_site.access.console.pages import EXPORTS, ConsolePage, ReasonForm, actor, done, holds
from ergon_site.access.core.roles import Right, reason_missing
from ergon_site.access.core.texts import is_key, sentence
from ergon_site.access.streaming import StreamedAnswer

ACROSS = "across"
# Which page of the list is shown: no part of its filter.
PLACE = ("at", "p")
PAGE_BOX = mark_safe(
    '<label><input type="checkbox" id="action-toggle" class="ergon-box" aria-label="Select every row of this page"> '
    '<span aria-hidden="true">Select this page</span></label>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAct:
    """Something that can be done to many rows: what the button says, the verb, what was done then, what it means."""

    title: str
    verb: str
    past: str
    meaning: str
    right: Right = Right.LEAD


EXPORT = BulkAct(
    title="Export", verb="export", past="exported", meaning="The next page has the files.", right=Right.VIEW
)


def bulk_verbs() -> Any:
    """The verbs of bulk operations, of the installed app that has them; None if there is none."""
    return next(map(import_module, declared_by_apps("ergon_bulk")), None)


def row_box(page: Any, row: Any) -> str:
    """The cell with the check box of a row, in a list that has boxes."""
    if not page.acts:
        return ""
    return format_html('<td class="ergon-select">{}</td>', page.action_checkbox(row))


class SelectionForm(ReasonForm):
    """The terms of a bulk operation, below what it would do now."""

    form_before_template = "console/selection_dry_run.html"

    def __init__(self, request: HttpRequest, *, verb: str, shown: dict[str, Any], data: Any = None) -> None:
        super().__init__(request, data=data)
        self.shown, bulk = shown, bulk_verbs()
        if verb == EXPORT.verb:
            self.fields["reason"].required = False
            return
        if verb == "replay":
            self.fields["canary"] = forms.IntegerField(
                initial=1,
                min_value=0,
                max_value=bulk.MOST_FIRST,
                widget=UnfoldAdminIntegerFieldWidget,
                help_text="Replay this many first; continue only if they succeed. 0: no canary.",
            )
        self.fields["rate"] = forms.FloatField(
            initial=10 if verb == "replay" else bulk.AT_ONCE,
            min_value=0.1,
            max_value=bulk.AT_ONCE,
            label="Per second",
            widget=UnfoldAdminDecimalFieldWidget,
            help_text=f"Up to {bulk.AT_ONCE}."
            + (" It stops automatically when a replay fails again." if verb == "replay" else ""),
        )
        self.order_fields(["canary", "rate", "reason"])

    def get_before_template_context(self, request: HttpRequest, object_id: Any = None) -> dict[str, Any]:
        return self.shown

    def terms(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("canary", "rate") if name in self.cleaned_data}


class SelectablePage(ConsolePage):
    """A page whose list has check boxes, if it names what can be done to many of its rows."""

    bulk_kind: ClassVar[str] = ""
    bulk_acts: ClassVar[Sequence[BulkAct]] = ()
    # The theme's own bar of actions is not used.
    actions_on_top = False

    @property
    def acts(self) -> Sequence[BulkAct]:
        return self.bulk_acts if bulk_verbs() is not None else ()

    @property
    def media(self) -> forms.Media:
        # Django's script for selected rows expects Django's own bar of actions.
        found = super().media
        scripts = [script for script in found._js if not str(script).endswith("actions.js")]  # noqa: SLF001
        return forms.Media(css=found._css, js=scripts)  # noqa: SLF001

    @display(description=PAGE_BOX)
    def action_checkbox(self, obj: Model) -> str:
        return format_html(
            '<input type="checkbox" class="action-select ergon-box" name="{}" value="{}" aria-label="Select {}">',
            *(ACTION_CHECKBOX_NAME, obj.pk, obj),
        )

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        selected, files = map(self.admin_site.admin_view, (self.selected_view, self.selected_export_view))
        return [
            path("selected/<slug:verb>/", selected, name=f"{name}_selected"),
            path("selected/<int:operation_id>/export.<slug:form>", files, name=f"{name}_selected_export"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        filters = _filters(request)
        buttons = [
            {
                "title": act.title,
                "address": f"selected/{act.verb}/{filters}",
                "refusal": "" if holds(request, act.right) else reason_missing(act.right),
            }
            for act in self.acts
        ]
        selection = {"buttons": buttons, "refusals": {one["refusal"] for one in buttons} - {""}} if buttons else None
        return super().changelist_view(request, {"selection": selection, "page_box": PAGE_BOX, **(extra_context or {})})

    def selected_view(self, request: HttpRequest, verb: str) -> HttpResponse:
        """The dry run of an act on what is selected, and its beginning."""
        act = next((one for one in self.acts if one.verb == verb), None)
        if act is None:
            raise Http404
        if not self.has_view_permission(request) or not holds(request, act.right):
            raise PermissionDenied
        listed = reverse(f"ergon:{self.opts.app_label}_{self.opts.model_name}_changelist") + _filters(request)
        if request.method != "POST":
            return HttpResponseRedirect(listed)
        bulk = bulk_verbs()
        try:
            return self._ask(request, act, self._selection(request, bulk), listed)
        except bulk.BulkError as error:
            messages.error(request, sentence(error))
            return _lead(request, listed)

    def _ask(self, request: HttpRequest, act: BulkAct, selection: Any, listed: str) -> HttpResponse:
        bulk, is_sent = bulk_verbs(), "_form_submitted" in request.POST
        dry = bulk.dry_run(act.verb, selection)
        # Where every row was looked at, those that would be skipped are not counted.
        number = dry.would if dry.would and dry.examined >= dry.matched and not dry.is_capped else dry.matched
        count = f"{number:,}{'+' if dry.is_capped else ''}"
        one, many = bulk.nouns_of(act.verb, selection)
        noun, is_across = one if count == "1" else many, ACROSS in request.POST
        shown = {"dry": dry, "act": act, "selection": selection, "count": count, "is_across": is_across}
        shown |= {"nouns": many, "most": f"{bulk.MOST:,}"}
        form = SelectionForm(request, verb=act.verb, shown=shown, data=request.POST if is_sent else None)
        if form.is_valid():
            terms, why = bulk.Terms(**form.terms()), form.cleaned_data["reason"]
            operation = bulk.begin_selected(act.verb, selection, terms, by=actor(request), reason=why)
            told = "Ready to be downloaded." if act is EXPORT else "Started. This page shows its progress."
            messages.success(request, told)
            return _lead(request, reverse("ergon:engines_bulkoperation_change", args=[operation.pk]))
        title = f"{act.title} {count} {noun}"
        context: dict[str, Any] = {
            "dialog": {"title": title, "description": act.meaning},
            "form": form,
            "address": listed,
        }
        if "HX-Request" in request.headers:
            return TemplateResponse(request, "console/dialog.html", context)
        return self.page(request, "console/dialog_page.html", title, **context)

    def _selection(self, request: HttpRequest, bulk: Any) -> Any:
        """What was selected: the rows by their keys, or the filter of the list."""
        keys = list(dict.fromkeys(request.POST.getlist(ACTION_CHECKBOX_NAME)))
        if ACROSS in request.POST:
            try:
                found = self.get_changelist_instance(request)
            except IncorrectLookupParameters as error:
                msg = "This list has no such filter, or the filter has no such value."
                raise BadRequest(msg) from error
            if (words := getattr(found, "wanted", None)) is not None:
                return bulk.Selection(kind=self.bulk_kind, where={word: text for word, text in words.items() if text})
            keys = [str(key) for key in found.get_queryset(request).values_list("pk", flat=True)]
        if wrong := [key for key in keys if not is_key(key)]:
            msg = f"{wrong[0][:50]!r} is not the number of a {self.opts.verbose_name}"
            raise bulk.BulkError(msg)
        return bulk.Selection(kind=self.bulk_kind, keys=tuple(sorted(map(int, keys))))

    def selected_export_view(self, request: HttpRequest, operation_id: int, form: str) -> StreamedAnswer:
        """The rows of an export as a file."""
        bulk = bulk_verbs()
        if not self.has_view_permission(request):
            raise PermissionDenied
        if bulk is None or form not in EXPORTS:
            raise Http404
        try:
            operation = bulk.find(operation_id)
            rows = bulk.exported(operation)
        except bulk.BulkError as error:
            raise Http404 from error
        if operation.kind != self.bulk_kind:
            raise Http404
        return self.file(rows, form)


class BoxedPage(SelectablePage):
    """A page whose list is drawn by the theme, with the boxes as its first column."""

    def get_list_display(self, request: HttpRequest) -> Sequence[Any]:
        shown = super().get_list_display(request)
        return ("action_checkbox", *shown) if self.acts else shown

    def get_list_display_links(self, request: HttpRequest, list_display: Sequence[Any]) -> Any:
        shown = [column for column in list_display if column != "action_checkbox"]
        return super().get_list_display_links(request, shown)


def _filters(request: HttpRequest) -> str:
    """The filters of a list as the query string of an address."""
    asked = request.GET.copy()
    for name in PLACE:
        asked.pop(name, None)
    return f"?{asked.urlencode()}" if asked else ""


def _lead(request: HttpRequest, address: str) -> HttpResponse:
    return done(address) if "HX-Request" in request.headers else HttpResponseRedirect(address)
