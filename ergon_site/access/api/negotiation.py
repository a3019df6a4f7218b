"""Chooses the form of an answer."""

from collections.abc import Iterable
from typing import cast

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class QuickNegotiation(DefaultContentNegotiation):
    """Spares the parsing of media types where there is one, and a client takes anything or just that."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        given, (first, *others) = request.META, renderers
        is_taken = given.get("HTTP_ACCEPT", "*/*") in ("*/*", first.media_type)
        if is_taken and not (others or format_suffix or given.get("QUERY_STRING")):
            return first, first.media_type
        return cast("tuple[BaseRenderer, str]", super().select_renderer(request, renderers, format_suffix))
