"""JSON bodies, bounded."""

from collections.abc import Callable, Mapping
from typing import IO, Any

import orjson
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from ergon_site.access.api.problems import PayloadTooLarge
from ergon_site.access.core import json_text

BODY_LIMIT = 2 * 1024 * 1024


def quickly_parsed(body: bytes, thoroughly: Callable[[], Any]) -> Any:
    """A text that is the same when it is written again has no name twice, no odd number and no escape.

    Compact JSON, as programs send it, mostly is; and what is not is looked at by the thorough parser.
    """
    if b"\\u" in body:
        return thoroughly()
    try:
        value = orjson.loads(body)
        is_same = orjson.dumps(value) == body
    except (ValueError, TypeError, RecursionError):
        is_same = False
    if not is_same:
        return thoroughly()
    json_text.refuse_depth(body, value)
    return value


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
            return quickly_parsed(body, lambda: json_text.parse(body, refuses_repeats=self.refuses_repeats))
        except json_text.MalformedJSONError as error:
            raise ParseError(str(error)) from None


class StrictJSONParser(LimitedJSONParser):
    """The same, and no name twice in an object."""

    refuses_repeats = True
