"""Frames of RabbitMQ, read so that a message which cannot be decoded harms no other."""

from collections.abc import Callable, Mapping
from struct import pack
from typing import Any

from amqp.method_framing import frame_handler
from amqp.serialization import decode_properties_basic, dumps

from engines.core.errors import error_text

# Of a message whose properties cannot be decoded, the only header: why not.
UNREADABLE = "ergon-unreadable"
# What a frame holds beside the headers, at most: its own ends, and properties of up to 256 bytes each.
OTHERS = 4096
_PROPERTIES, _BEFORE_THEM = 2, 12
_HEADERS_ONLY = pack(">H", 1 << 13)
_Frame = tuple[int, int, bytes]


def read_frames(connection: Any, callback: Callable[..., Any]) -> Callable[[_Frame], bool]:
    """The library's reader, which ends a connection over properties that it cannot decode: those are replaced."""
    read = frame_handler(connection, callback)

    def read_any(frame: _Frame) -> bool:
        try:
            return bool(read(frame))
        except Exception:
            kind, channel, content = frame
            fault = _fault_in(content) if kind == _PROPERTIES else None
            if fault is None:
                raise
            marked = _HEADERS_ONLY + dumps("F", [{UNREADABLE: fault}])
            return bool(read((kind, channel, content[:_BEFORE_THEM] + marked)))

    return read_any


def has_room(connection: Any, headers: Mapping[str, Any]) -> bool:
    """Whether headers can be sent: RabbitMQ ends a connection over a message whose properties exceed a frame."""
    try:
        return bool(len(dumps("F", [headers])) + OTHERS <= connection.frame_max)
    except Exception:  # noqa: BLE001 (the library reads more than it can write)
        return False


def _fault_in(content: bytes) -> str | None:
    try:
        decode_properties_basic(content, _BEFORE_THEM)
    except Exception as error:  # noqa: BLE001 (whatever the library makes of them)
        return error_text(error)
    return None
