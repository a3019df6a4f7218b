"""The notice that readers find where a fact was skipped."""

from hashlib import sha256
from typing import Any

PREDICATE = "was_skipped"
LABELS = {"ergon": "skipped"}


def skipped(
    zones: tuple[str, str], offset: int, at_unix_ms: int, *, alarm: str, by: str, reason: str
) -> dict[str, Any]:
    """A fact that says that an administrator skipped the one at this offset, and why."""
    from_zone, to_zone = zones
    key = sha256("\n".join(("skipped", from_zone, to_zone, str(offset))).encode()).hexdigest()
    return {
        "envelope": {
            "message_id": f"skipped-{key}",
            "from_zone": from_zone,
            "to_zone": to_zone,
            "produced_at_unix_ms": at_unix_ms,
            "labels": dict(LABELS),
        },
        "fact": {
            "subject": f"skipped_fact:{offset}",
            "predicate": PREDICATE,
            "object_json": {"offset": offset, "alarm": alarm, "by": by, "reason": reason},
        },
    }
