"""Pages that carry out verbs: what a verb refuses is told on the page."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.pages import actor, done
from ergon_site.access.core.roles import Right
from ergon_site.access.core.texts import sentence
from facts.core.errors import FactError


class Verbs(DetailPage):
    """A page with dialogs, and a form that creates a row."""

    edit_right = Right.LEAD
    refused_by = (FactError,)
    new_form: ClassVar[Callable[..., Any]]
    new_intro: ClassVar[str]

    def make_row(self, asked: dict[str, Any], **why: str) -> Any:
        """Call the verb that creates a row."""
        raise NotImplementedError

    def tried(self, request: HttpRequest, verb: Callable[[], Any], success: str, object_id: str) -> HttpResponse:
        """Carry out what a dialog asked for, and show the page again."""
        try:
            verb()
        except self.refused_by as error:
            messages.error(request, sentence(error))
        else:
            messages.success(request, success)
        return done(self.address(object_id))

    def add_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self.filled_form(request)
        noun = self.opts.verbose_name

        def make() -> HttpResponse:
            row = self.make_row(form.cleaned_data, **why(request, form))
            messages.success(request, f"The {noun} {row} was created.")
            return redirect(self.address(row.pk))

        page: dict[str, Any] = {"form": form, "submit_text": f"Create {noun}", "intro": self.new_intro}
        return self.attempt(form, make) or self.page(request, "console/form.html", f"New {noun}", **page)

    def filled_form(self, request: HttpRequest) -> forms.Form:
        form: forms.Form = type(self).new_form(request.POST or None)
        return form


def why(request: HttpRequest, form: forms.Form) -> dict[str, str]:
    """Who asks for a verb, and the reason that was given."""
    return {"by": actor(request), "reason": form.cleaned_data["reason"]}
