"""JSON bodies, bounded."""

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any

import orjson
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from ergon_site.access.api.problems import PayloadTooLarge
from ergon_site.access.core import json_text
from ergon_site.access.core.json_size import Bounds

BODY_LIMIT = 2 * 1024 * 1024
# For bodies of up to 4 MiB, so that they take at most some 30 MB.
BOUNDS = Bounds(containers=60_000, values=300_000, names=300_000)
READ_AT_ONCE = 64 * 1024
WRITTEN_AT_ONCE = 1024 * 1024
# Into a batch, its items, and the fields of an item.
PIECED_LEVELS = 3
LONG_TEXT = 64 * 1024
# For many items together. A thousand of 4 KiB fit, and a body takes at most 48 MiB in memory with all its copies.
BATCH_LIMIT = 8 * 1024 * 1024
BATCH_BOUNDS = Bounds(containers=30_000, values=150_000, names=100_000)


def _read(stream: IO[Any], limit: int) -> bytearray:
    """The body, up to the first byte beyond the limit. In pieces: the server holds twice what is read at once."""
    body = bytearray()
    while (room := limit + 1 - len(body)) and (piece := stream.read(min(READ_AT_ONCE, room))):
        body += piece
    return body


def quickly_parsed(body: bytes | bytearray, thoroughly: Callable[[], Any]) -> Any:
    """A text that is the same when it is written again has no name twice, no odd number and no escape.

    Compact JSON, as programs send it, mostly is; and what is not is looked at by the thorough parser.
    """
    if b"\\u" in body:
        return thoroughly()
    try:
        value = orjson.loads(body)
        is_same = _is_written_as(value, body)
    except (ValueError, TypeError, RecursionError):
        is_same = False
    if not is_same:
        return thoroughly()
    json_text.refuse_depth(body, value)
    return value


def _announced(request: Request) -> int:
    length = request.headers.get("content-length") or ""
    return int(length) if length.isdecimal() else 0


def _is_written_as(value: Any, body: bytes | bytearray) -> bool:
    if len(body) <= WRITTEN_AT_ONCE:
        return orjson.dumps(value) == body
    place = 0
    # In pieces: to hold a large body twice would double what it costs.
    for piece in _pieces(value, PIECED_LEVELS):
        if not body.startswith(piece, place):
            return False
        place += len(piece)
    return place == len(body)


def _pieces(value: Any, levels: int) -> Iterator[bytes]:
    if levels and value and type(value) is dict:
        mark = b"{"
        for name, inner in value.items():
            yield mark + orjson.dumps(name) + b":"
            yield from _pieces(inner, levels - 1)
            mark = b","
        yield b"}"
    elif levels and value and type(value) is list:
        mark = b"["
        for inner in value:
            yield mark
            yield from _pieces(inner, levels - 1)
            mark = b","
        yield b"]"
    elif type(value) is str and len(value) > LONG_TEXT:
        yield b'"'
        for place in range(0, len(value), LONG_TEXT):
            yield orjson.dumps(value[place : place + LONG_TEXT])[1:-1]
        yield b'"'
    else:
        yield orjson.dumps(value)


class LimitedJSONParser(BaseParser):
    """A JSON body of at most `view.body_limit` bytes, never read beyond that, and within `view.body_bounds`."""

    media_type = "application/json"
    refuses_repeats = False

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        view = parser_context["view"] if parser_context else None
        limit, bounds = getattr(view, "body_limit", BODY_LIMIT), getattr(view, "body_bounds", BOUNDS)
        if parser_context and _announced(parser_context["request"]) > WRITTEN_AT_ONCE:
            # Requests of the framework refer to themselves: large ones before this one may still be there.
            gc.collect()
        value, refusal = self._parsed(_read(stream, limit), limit, bounds)
        # Here, where the body is gone: an error keeps alive what the functions hold that it has passed.
        if refusal is not None:
            raise refusal
        return value

    def _parsed(self, body: bytearray, limit: int, bounds: Bounds) -> tuple[Any, APIException | None]:
        if len(body) > limit:
            return None, PayloadTooLarge(f"The body is larger than {limit:,} bytes.")
        if excess := bounds.excess(body):
            return None, PayloadTooLarge(f"The body has more than {excess}.")
        try:
            thoroughly = partial(json_text.parse, body, refuses_repeats=self.refuses_repeats)
            return quickly_parsed(body, thoroughly), None
        except json_text.MalformedJSONError as error:
            return None, ParseError(str(error))


class StrictJSONParser(LimitedJSONParser):
    """The same, and no name twice in an object."""

    refuses_repeats = True
