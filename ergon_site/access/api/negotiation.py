"""Chooses the form of an answer."""

from collections.abc import Sequence
from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class QuickNegotiation(DefaultContentNegotiation):
    """Spares the parsing of media types where there is one, and a client takes anything or just that."""

    def select_renderer(
        self, request: Request, renderers: Sequence[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        given, first = request.META, renderers[0]
        is_taken = given.get("HTTP_ACCEPT", "*/*") in ("*/*", first.media_type)
        if is_taken and len(renderers) == 1 and not (format_suffix or given.get("QUERY_STRING")):
            return first, str(first.media_type)
        chosen: Any = super().select_renderer(request, renderers, format_suffix)
        return chosen
