"""The maximum sizes of the parts of a fact."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

KIB, MIB, GIB = 1024, 1024**2, 1024**3
# What can be kept: columns have a width, and the largest values that are written at once fit into one statement.
MOST = {"message_id": 1000, "subject": 2000, "predicate": 500, "object_json": 16 * MIB, "artifact": 2**53 - 1}
LONGEST_TEXT = 256
SMALLEST_BODY = 2 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Characters of texts, counts of labels, bytes of JSON and of artifacts."""

    message_id: int = 256
    subject: int = 512
    predicate: int = 128
    labels: int = 32
    label_name: int = 63
    label_value: int = 256
    object_json: int = 256 * KIB
    artifact: int = 5 * GIB

    @property
    def causation_id(self) -> int:
        """The message id of another fact, perhaps of a boundary with limits of its own."""
        return max(LONGEST_TEXT, self.message_id)

    @property
    def body(self) -> int:
        """Bytes of a fact as it is sent: blanks and escapes may make it longer than it is kept."""
        return max(SMALLEST_BODY, 4 * self.object_json)


def limits_in(told: Mapping[str, Any]) -> Limits:
    """The limits, those that are told in place of the usual ones; refuses what is none."""
    known = {one.name for one in fields(Limits)}
    for name, value in told.items():
        if name not in known:
            msg = f"has {name!r}, which is not one of {', '.join(sorted(known))}"
            raise ValueError(msg)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"must have a whole number above 0 as {name!r}, not {value!r}"
            raise ValueError(msg)
        if value > MOST.get(name, value):
            msg = f"may have at most {MOST[name]:,} as {name!r}, not {value:,}"
            raise ValueError(msg)
    return Limits(**told)


def checked(told: dict[str, Any]) -> dict[str, Any]:
    """The same, once it is known that these are limits."""
    limits_in(told)
    return told
