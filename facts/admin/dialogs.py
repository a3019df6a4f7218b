"""Pages that carry out verbs: what a verb refuses is told on the page."""

from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.pages import actor
from ergon_site.access.core.roles import Right
from facts.core.errors import FactError


class Verbs(DetailPage):
    """A page with dialogs, and a form that creates a row."""

    edit_right = Right.LEAD
    refused_by = (FactError,)
    new_intro: ClassVar[str]

    def new_context(self, request: HttpRequest) -> dict[str, Any]:
        return {"submit_text": f"Create {self.opts.verbose_name}", "intro": self.new_intro}

    def make(self, request: HttpRequest, form: Any) -> HttpResponse:
        row = self.make_row(form.cleaned_data, **why(request, form))
        messages.success(request, f"The {self.opts.verbose_name} {row} was created.")
        return redirect(self.address(row.pk))

    def make_row(self, asked: dict[str, Any], **why: str) -> Any:
        """Call the verb that creates a row."""
        raise NotImplementedError


def why(request: HttpRequest, form: forms.Form) -> dict[str, str]:
    """Who asks for a verb, and the reason that was given."""
    return {"by": actor(request), "reason": form.cleaned_data["reason"]}
