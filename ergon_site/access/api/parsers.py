"""JSON bodies, bounded."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from ergon_site.access.api.problems import PayloadTooLarge
from ergon_site.access.core import json_text

BODY_LIMIT = 2 * 1024 * 1024


class LimitedJSONParser(BaseParser):
    """A JSON body of at most `view.body_limit` bytes, never read beyond that."""

    media_type = "application/json"
    refuses_repeats = False

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        view = parser_context["view"] if parser_context else None
        limit = getattr(view, "body_limit", BODY_LIMIT)
        body = stream.read(limit + 1)
        if len(body) > limit:
            msg = f"The body is larger than {limit:,} bytes."
            raise PayloadTooLarge(msg)
        try:
            return json_text.parse(body, refuses_repeats=self.refuses_repeats)
        except json_text.MalformedJSONError as error:
            raise ParseError(str(error)) from None


class StrictJSONParser(LimitedJSONParser):
    """The same, and no name twice in an object."""

    refuses_repeats = True
