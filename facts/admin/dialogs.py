"""Dialogs that carry out a verb: what the verb refuses is told on the page."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from ergon_site.access.detail import DetailPage, sentence
from ergon_site.access.pages import done


class Verbs(DetailPage):
    def tried(self, request: HttpRequest, verb: Callable[[], Any], success: str, object_id: str) -> HttpResponse:
        """Carry out what a dialog asked for, and show the page again."""
        try:
            verb()
        except self.refused_by as error:
            messages.error(request, sentence(error))
        else:
            messages.success(request, success)
        return done(self.address(object_id))
