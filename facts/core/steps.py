"""The steps of a client of the boundary, and the values that answer them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request; the answer is what comes back, an exception if none does."""

    method: str
    path: str
    content: "bytes | IO[bytes] | None" = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    timeout: float = PATIENCE


class Pause(NamedTuple):
    """Wait so many seconds, or until somebody wants an end."""

    seconds: float


class Hand(NamedTuple):
    """Give a fact to a handler."""

    handler: Callable[[Any], Any]
    fact: "Fetched"


class Answer(NamedTuple):
    """An answer of the boundary."""

    status: int
    body: bytes
    retry_after: str | None = None


class NoAnswerError(Exception):
    """Thrown into a rule by whoever performs it: the request got no answer."""


class Appended(NamedTuple):
    """The offset of a fact in the log of its boundary."""

    offset: int
    message_id: str
    is_duplicate: bool


class Stored(NamedTuple):
    """An artifact as the boundary keeps it."""

    bucket: str
    key: str
    digest: str
    size: int
    media_type: str


class Fetched(NamedTuple):
    """A fact and its place."""

    offset: int
    envelope: dict[str, Any]
    fact: dict[str, Any]


class Page(NamedTuple):
    """The facts after a cursor."""

    facts: list[Fetched]
    cursor: int


class Reader(NamedTuple):
    """A consumer: which boundary it reads, how far it is, and how far it could be."""

    name: str
    from_zone: str
    to_zone: str
    cursor: int
    newest: int
