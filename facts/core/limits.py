"""How large the parts of a fact may be."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

KIB, GIB = 1024, 1024**3


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


def limits_in(told: Mapping[str, Any]) -> Limits:
    """The limits, those that are told in place of the usual ones; refuses what is none."""
    known = {one.name for one in fields(Limits)}
    for name, value in told.items():
        if name not in known:
            msg = f"{name!r} is none of {', '.join(sorted(known))}"
            raise ValueError(msg)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"{name!r} must be a whole number above 0"
            raise ValueError(msg)
    return Limits(**told)
