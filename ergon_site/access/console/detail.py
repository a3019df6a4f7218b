"""Pages of single rows that show facts, figures and buttons, and pages whose form carries out a verb."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from ergon_site.access.console.buttons import bar, button
from ergon_site.access.console.pages import ConsolePage
from ergon_site.access.core.texts import sentence


class DetailPage(ConsolePage):
    """A list, and for each row a page made from `detail_template` instead of a form on its columns."""

    detail_template: ClassVar[str]
    refused_by: ClassVar[tuple[type[Exception], ...]] = ()
    new_title: ClassVar[str] = ""
    empty_text: ClassVar[str] = ""
    list_before_template = "console/list_bar.html"
    show_add_link = False
    actions = None

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        new = []
        if self.edit_right is not None and self.new_title:
            address = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_add")
            new.append(button(request, self.new_title, address, right=self.edit_right, is_dialog=False))
        return super().changelist_view(request, {"bar": bar(*new), **(extra_context or {})})

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The context of a row's page."""
        raise NotImplementedError

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **__: Any) -> HttpResponse:
        row = self.row(request, object_id)
        if request.method != "GET":
            raise PermissionDenied
        return self.page(request, self.detail_template, str(row), row, **self.details(request, row))

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
