"""Message ids that stay the same when a producer tries again, and a look at those that do not."""

import re
import uuid
from datetime import UTC, datetime
from hashlib import sha256

CLOCKS = {1, 6, 7}
# Digits of the time in seconds, with a fraction or not; in milli-, micro- and nanoseconds.
A_TIME = re.compile(r"\d{10}(\.\d+)?|\d{13}|\d{16}|\d{19}")
# The same behind a word, where ten digits are a time only if they are one of these decades: orders have numbers too.
A_TIME_OF_LATE = re.compile(r"1[5-9]\d{8}(\.\d+)?|\d{13}|\d{16}|\d{19}")
A_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|\d{8}T\d{4}(\d\d)?([.,]\d+)?(Z|[+-]\d\d:?(\d\d)?)?")
A_NUMBER = re.compile(r"\d+")
A_SHORT_NUMBER = re.compile(r"0*\d{1,6}")
# A word before what makes an id another one each time does not make it the same.
A_WORD = re.compile(r"[A-Za-z_]+[-_:.]?")


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
    """A warning if this id will probably differ at the next try; nothing otherwise."""
    word = A_WORD.match(message_id)
    rest, is_bare = message_id[word.end() :] if word else message_id, word is None
    # Hexadecimal digits are letters too: a UUID may seem to begin with a word.
    version = _version(message_id) or _version(rest)
    if version == 4:  # noqa: PLR2004 (UUIDs count so)
        return ["a random UUID: a retry after a restart would have a different one; derive it from the business event"]
    if version in CLOCKS:
        return ["a UUID made from the clock: a retry after a restart would have a different one"]
    if version is not None or not rest.isascii():
        return []
    if (A_TIME if is_bare else A_TIME_OF_LATE).fullmatch(rest) or A_DATE.fullmatch(rest):
        return ["a timestamp: every retry would have a different one"]
    if is_bare and A_NUMBER.fullmatch(rest):
        return ["a counter: it may start again after a restart"]
    if A_SHORT_NUMBER.fullmatch(rest):
        return ["like a counter: a counter may start again after a restart"]
    return []


def _version(text: str) -> int | None:
    try:
        return uuid.UUID(text).version
    except ValueError:
        return None


def _digest(*parts: str) -> str:
    digest = sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()
