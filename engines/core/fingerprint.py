"""The fingerprint of a failure: equal for failures of the same kind."""

import re
from hashlib import sha256

_QUOTED = re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\"|`[^`]{0,200}`")
_IDENTIFIER = re.compile(
    r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b|\b0x[0-9a-f]+\b|\b[0-9a-f]{16,}\b", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<!\w)[-+]?\d+(?:[.,:]\d+)*|\d+(?:[.,:]\d+)*")
LONGEST = 300


def normalise(message: str) -> str:
    """A message without what differs from case to case: quoted values, identifiers, numbers."""
    line = message.strip().partition("\n")[0]
    for pattern, stand_in in ((_QUOTED, "'…'"), (_IDENTIFIER, "…"), (_NUMBER, "#")):
        line = pattern.sub(stand_in, line)
    return line[:LONGEST]


def fingerprint(source: str, step: str, error_type: str, message: str) -> str:
    """The key of a kind of failure: who failed, in which step, with what, saying what in general."""
    parts = "\x1f".join((source, step, error_type, normalise(message)))
    return sha256(parts.encode("utf-8", "replace")).hexdigest()[:32]
