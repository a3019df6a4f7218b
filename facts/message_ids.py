"""Message ids that stay the same when a producer tries again, and a look at those that do not."""

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256

CLOCKS = {1, 6, 7}
A_CLOCK_IN_SECONDS = range(10**9, 10**10)
A_CLOCK_IN_MILLISECONDS = range(10**12, 10**13)
A_CLOCK_IN_NANOSECONDS = range(10**18, 10**19)


def hash_id(event_type: str, kind: str, id: str) -> str:  # noqa: A002 (the document's name)
    """SHA-256 of the three, each with its length before it: ("ab", "c") and ("a", "bc") are different events."""
    return _digest(event_type, kind, id)


def uuid_id(namespace: uuid.UUID | str, name: str) -> str:
    """A UUID of version 5; a text as namespace stands for the one derived from it."""
    space = namespace if isinstance(namespace, uuid.UUID) else uuid.uuid5(uuid.NAMESPACE_DNS, namespace)
    return str(uuid.uuid5(space, name))


def event_id(kind: str, id: str, event_type: str, occurred_at: datetime | str) -> str:  # noqa: A002
    """SHA-256 of what happened to whom at which time of the business, not of the clock."""
    if isinstance(occurred_at, datetime):
        if occurred_at.tzinfo is None:
            msg = "occurred_at needs a time zone"
            raise ValueError(msg)
        occurred_at = occurred_at.astimezone(UTC).isoformat(timespec="microseconds")
    return _digest(kind, id, event_type, occurred_at)


def check_message_id(message_id: str) -> list[str]:
    """What makes it likely that this id will be another one at the next try; nothing if it looks well."""
    return list(_warnings(message_id))


def _warnings(message_id: str) -> Iterator[str]:
    try:
        version = uuid.UUID(message_id).version
    except ValueError:
        version = None
    if version == 4:  # noqa: PLR2004 (UUIDs count so)
        yield "a random UUID: a retry after a restart would have another one; derive it from the business event"
    elif version in CLOCKS:
        yield "a UUID made from the clock: a retry after a restart would have another one"
    if message_id.isascii() and message_id.isdigit():
        number = int(message_id)
        clocks = (A_CLOCK_IN_SECONDS, A_CLOCK_IN_MILLISECONDS, A_CLOCK_IN_NANOSECONDS)
        if any(number in clock for clock in clocks):
            yield "a time of the clock: another one at every try"
        else:
            yield "a counter: it may start anew after a restart"
    elif re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", message_id):
        yield "a time of the clock: another one at every try"
    elif re.fullmatch(r"[A-Za-z]+[-_:]?0*\d{1,6}", message_id):
        yield "it looks like a counter: if it is, it may start anew after a restart"


def _digest(*parts: str) -> str:
    digest = sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()
