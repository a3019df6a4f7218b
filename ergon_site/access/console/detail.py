"""Pages of single rows that show facts, figures and buttons, and pages whose form carries out a verb."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from ergon_site.access.console.buttons import bar, button
from ergon_site.access.console.pages import ConsolePage, done
from ergon_site.access.core.texts import sentence


class ListPage(ConsolePage):
    """A list with a button above it that leads to the form of a new row."""

    new_title: ClassVar[str] = ""
    list_before_template = "console/list_bar.html"
    show_add_link = False
    actions = None

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        new = []
        if self.edit_right is not None and self.new_title:
            address = reverse(f"ergon:{self.opts.app_label}_{self.opts.model_name}_add")
            new.append(button(request, self.new_title, address, right=self.edit_right, is_dialog=False))
        return super().changelist_view(request, {"bar": bar(*new), **(extra_context or {})})

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        named = {"title": self.new_title, "crumb": self.new_title, **(extra_context or {})}
        response: HttpResponse = super().add_view(request, form_url, named)
        return response

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        one_button = {"show_save_and_add_another": False, "show_save_and_continue": False}
        shown = {**one_button, **(extra_context or {})}
        response: HttpResponse = super().changeform_view(request, object_id, form_url, shown)
        return response


class DetailPage(ListPage):
    """A list, for each row a page made from `detail_template` instead of a form on its columns, and a form of new rows.

    A part of the page refreshes itself if there is a `live_template`, and a row is made by `make` from `new_form`.
    """

    # Rows that its rows come with.
    related: ClassVar[tuple[str, ...]] = ()
    detail_template: ClassVar[str]
    live_template: ClassVar[str] = ""
    # What its verbs refuse with.
    refused_by: ClassVar[tuple[type[Exception], ...]] = ()
    new_form: ClassVar[Callable[..., Any]]
    new_template: ClassVar[str] = "console/form.html"
    new_terms: ClassVar[dict[str, Any]] = {}
    empty_text: ClassVar[str] = ""

    def get_urls(self) -> list[URLPattern]:
        name, view = f"{self.opts.app_label}_{self.opts.model_name}_live", self.admin_site.admin_view(self.live_view)
        live = [path("<path:object_id>/live/", view, name=name)] if self.live_template else []
        return [*live, *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related(*self.related) if self.related else rows

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The context of a row's page."""
        raise NotImplementedError

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **__: Any) -> HttpResponse:
        row = self.row(request, object_id)
        if request.method != "GET":
            raise PermissionDenied
        return self.page(request, self.detail_template, str(row), row, **self.details(request, row))

    def live(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The context of the part that refreshes itself."""
        raise NotImplementedError

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return TemplateResponse(request, self.live_template, self.live(request, self.row(request, object_id)))

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self.filled_form(request)
        made = self.attempt(form, lambda: self.make(request, form))
        return made or self.page(request, self.new_template, self.new_title, form=form, **self.new_context(request))

    def filled_form(self, request: HttpRequest) -> Any:
        return type(self).new_form(request.POST or None)

    def new_context(self, request: HttpRequest) -> dict[str, Any]:
        """What the page of a new row shows besides its form."""
        return self.new_terms

    def make(self, request: HttpRequest, form: Any) -> HttpResponse:
        """Make a row of a valid form."""
        raise NotImplementedError

    def row(self, request: HttpRequest, object_id: str) -> Any:
        """The row, for those who may see it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        return row

    def attempt(self, form: forms.Form, carry_out: Callable[[], HttpResponse]) -> HttpResponse | None:
        """Carry out what a valid form says; what the verb refuses is told by the form, and no input is lost."""
        if not form.is_valid():
            return None
        try:
            return carry_out()
        except self.refused_by as error:
            field = getattr(error, "field", None)
            form.add_error(field if field in form.fields else None, sentence(error))
        return None

    def carry_out(
        self, request: HttpRequest, verb: Callable[[], Any], success: str | Callable[[Any], str], object_id: Any
    ) -> HttpResponse:
        """Do what a dialog asked for, and show the page again, or the one whose address the verb returns."""
        address = self.address(object_id)
        try:
            told = verb()
        except self.refused_by as error:
            messages.error(request, sentence(error))
        else:
            messages.success(request, success if isinstance(success, str) else success(told))
            address = told if isinstance(told, str) else address
        return done(address)
