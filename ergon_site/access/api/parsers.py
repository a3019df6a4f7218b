"""JSON bodies, bounded."""

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import orjson
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser

from ergon_site.access.api.problems import PayloadTooLarge
from ergon_site.access.core import json_text
from ergon_site.access.core.json_size import Parts, Size, sizes

MIB = 1024 * 1024
BODY_LIMIT = 2 * MIB
BATCH_LIMIT = 10 * MIB  # for many items together: a thousand of 4 KiB fit
# What a body may take in memory with its copies and its value, and what its request takes beside that.
MEMORY, OVERHEAD = 4 * BATCH_LIMIT, 7 * MIB
# No body so small can need so much.
SMALL = 128 * 1024
READ_AT_ONCE = 64 * 1024
WRITTEN_AT_ONCE = MIB
# Into a batch, its items, and the fields of an item.
PIECED_LEVELS = 3
LONG_TEXT = 64 * 1024
NOT_SAME = object()


def _read(stream: IO[Any], limit: int, announced: int) -> bytearray:
    """The body, up to the first byte beyond the limit. In pieces: the server holds twice what is read at once.

    Made in the size that was announced, or in the largest: one that grows leaves its smaller sizes behind in memory.
    """
    body = bytearray(min(announced or limit + 1, limit + 1))
    end = 0
    while (room := limit + 1 - end) and (piece := stream.read(min(READ_AT_ONCE, room))):
        body[end : end + len(piece)] = piece
        end += len(piece)
    del body[end:]
    return body


def quickly_parsed(body: bytes | bytearray) -> Any:
    """The value of a text that is the same when it is written again, or `NOT_SAME`.

    Such a text has no name twice, no odd number and no escape. Compact JSON, as programs send it, mostly is.
    """
    if b"\\u" in body:
        return NOT_SAME
    try:
        value = orjson.loads(body)
        if not _is_written_as(value, body):
            return NOT_SAME
    except (ValueError, TypeError, RecursionError):
        return NOT_SAME
    json_text.refuse_depth(body, value)
    return value


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
    """A JSON body of at most `view.body_limit` bytes, never read beyond that, and within bounds in memory."""

    media_type = "application/json"
    refuses_repeats = False

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit = getattr(parser_context["view"] if parser_context else None, "body_limit", BODY_LIMIT)
        length = parser_context["request"].META.get("CONTENT_LENGTH", "") if parser_context else ""
        announced = int(length) if length.isdecimal() else 0
        if announced > WRITTEN_AT_ONCE:
            # Requests of the framework refer to themselves: large ones before this one may still be there.
            gc.collect()
        value, refusal = self._parsed(_read(stream, limit, announced), limit)
        # Here, where the body is gone: an error keeps alive what the functions hold that it has passed.
        if refusal is not None:
            raise refusal
        return value

    def _parsed(self, body: bytearray, limit: int) -> tuple[Any, APIException | None]:
        if len(body) > limit:
            return None, PayloadTooLarge(f"The body is larger than {limit:,} bytes.")
        memory = max(MEMORY, 4 * limit)
        try:
            if excess := _excess(body, memory, lambda size: size.of_copying):
                return None, excess
            value = quickly_parsed(body)
            if value is not NOT_SAME:
                return value, None
            if excess := _excess(body, memory, lambda size: size.of_decoding):
                return None, excess
            return json_text.parse(body, refuses_repeats=self.refuses_repeats), None
        except json_text.MalformedJSONError as error:
            return None, ParseError(str(error))


def _excess(body: bytearray, memory: int, needed: Callable[[Size], int]) -> PayloadTooLarge | None:
    """The refusal of a body that may take more memory than it is allowed to."""
    if len(body) <= SMALL:
        return None
    parts = Parts(0, 0, 0)
    for size in sizes(body, memory):
        if needed(size) + OVERHEAD <= memory:
            return None
        parts = size.parts
    return PayloadTooLarge(
        f"The body needs more than {memory // MIB} MiB of memory: it has {len(body):,} bytes, {parts.containers:,} "
        f"lists and objects, {parts.values:,} values and {parts.names:,} names of fields. Send less at a time."
    )


class StrictJSONParser(LimitedJSONParser):
    """The same, and no name twice in an object."""

    refuses_repeats = True
