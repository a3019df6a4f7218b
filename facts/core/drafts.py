"""The rules for the envelope and the statement of a fact. Business schemas are not checked here."""

import re
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from facts.core.errors import InvalidFactError, refuse
from facts.core.limits import LONGEST_TEXT, Limits
from facts.core.texts import has_controls

ENVELOPE_REQUIRED = ("message_id", "from_zone", "to_zone", "produced_at_unix_ms")
ENVELOPE = frozenset(
    {*ENVELOPE_REQUIRED, "correlation_id", "causation_id", "labels", "object_media_type", "object_schema"}
)
FACT_REQUIRED = ("subject", "predicate", "object_json")
FACT = frozenset(FACT_REQUIRED)
_BOTH = frozenset({"envelope", "fact"})
TEXTS = ("correlation_id", "object_media_type", "object_schema")
INDEXED = (("envelope", "message_id"), ("envelope", "causation_id"), ("fact", "subject"))
# What an index of PostgreSQL holds beside the number of a boundary, or an offset.
LONGEST_INDEXED = 2560
LATEST = 2**53 - 1

SUBJECT = re.compile(
    r"[A-Za-z][A-Za-z0-9_.\-]*:[^\s/\x00-\x1f](?:[^/\x00-\x1f]*[^\s/\x00-\x1f])?"
    r"(?:/[^\s/\x00-\x1f](?:[^/\x00-\x1f]*[^\s/\x00-\x1f])?)?"
)
PREDICATE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
AT = "/fact/object_json"
PARTS = frozenset({"bucket", "key", "digest", "size"})
_is_subject = SUBJECT.fullmatch
# There are few predicates and fewer boundaries, and every fact names one of each.
REMEMBERED = 1024
_is_predicate = lru_cache(REMEMBERED)(PREDICATE.fullmatch)


class Reference(NamedTuple):
    """An artifact that a fact refers to; `at` is the JSON Pointer to the object that does."""

    bucket: str
    key: str
    digest: str
    size: int
    at: str = AT

    @property
    def name(self) -> tuple[str, str]:
        return self.bucket, self.key


def check(draft: Any, limits: Limits) -> None:
    """Refuse what is no fact, by the name of its first fault."""
    _only(draft, ("envelope", "fact"), _BOTH, "")
    envelope, fact = draft["envelope"], draft["fact"]
    _only(envelope, ENVELOPE_REQUIRED, ENVELOPE, "/envelope")
    _only(fact, FACT_REQUIRED, FACT, "/fact")
    _check_text(envelope["message_id"], limits.message_id, "/envelope/message_id")
    from_zone, to_zone = envelope["from_zone"], envelope["to_zone"]
    if type(from_zone) is not str or type(to_zone) is not str or not _are_zones(from_zone, to_zone):
        _check_text(from_zone, LONGEST_TEXT, "/envelope/from_zone")
        _check_text(to_zone, LONGEST_TEXT, "/envelope/to_zone")
        refuse("/envelope/to_zone", "must be another zone than from_zone")
    produced = envelope["produced_at_unix_ms"]
    if (type(produced) is not int and not _is_whole(produced)) or not 0 <= produced <= LATEST:
        refuse("/envelope/produced_at_unix_ms", "must be a whole number of milliseconds since 1970")
    if len(envelope) > len(ENVELOPE_REQUIRED):
        for name in TEXTS:
            if name in envelope:
                _check_text(envelope[name], LONGEST_TEXT, f"/envelope/{name}")
        if "causation_id" in envelope:
            _check_text(envelope["causation_id"], limits.causation_id, "/envelope/causation_id")
        if "labels" in envelope:
            _check_labels(envelope["labels"], limits)
    _check_text(fact["subject"], limits.subject, "/fact/subject")
    if not _is_subject(fact["subject"]):
        refuse("/fact/subject", "must be kind:id or kind:scope/id")
    predicate = fact["predicate"]
    if type(predicate) is not str or len(predicate) > limits.predicate or not _is_predicate(predicate):
        _check_text(predicate, limits.predicate, "/fact/predicate")
        refuse("/fact/predicate", "must be in lower_snake_case")


def check_indexed(draft: Mapping[str, Any]) -> None:
    """Refuse names that no index could hold. Only limits beyond the usual ones let such names come so far."""
    for part, name in INDEXED:
        if len(draft[part].get(name, "").encode()) > LONGEST_INDEXED:
            refuse(f"/{part}/{name}", f"must take at most {LONGEST_INDEXED:,} bytes as UTF-8")


def references_in(fact: Mapping[str, Any], *, is_stored: bool = False) -> tuple[Reference, ...]:
    """The artifacts that `object_json` refers to: every object in it, at any depth, with the four parts of a reference.

    A bucket and a key alone may be anything that is called so. As the whole of `object_json`, a bucket and a key with
    one of the other two parts are a reference that lacks a part, and refused.

    Of a fact that is stored elsewhere what is no reference is passed by: it was taken there.
    """
    stated = fact["object_json"]
    found: list[Reference] = []
    is_named = isinstance(stated, dict) and {"bucket", "key"} <= stated.keys()
    if is_named and not {"digest", "size"}.isdisjoint(stated) and not is_stored:
        _check_reference(stated, AT)
    values = [(AT, stated)]
    while values:
        at, value = values.pop()
        if isinstance(value, dict):
            values += ((f"{at}/{_escaped(name)}", part) for name, part in value.items())
            if value.keys() >= PARTS:
                with suppress(InvalidFactError) if is_stored else nullcontext():
                    _check_reference(value, at)
                    found.append(Reference(value["bucket"], value["key"], value["digest"], int(value["size"]), at))
        elif isinstance(value, list | tuple):
            values += ((f"{at}/{place}", part) for place, part in enumerate(value))
    return tuple(sorted(found, key=lambda one: one.at))


def may_refer(content: str) -> bool:
    """Whether the canonical text of a fact may hold a reference: most have none, and are not searched for any."""
    return '"bucket":' in content and '"key":' in content


def notice_of_skip(
    zones: tuple[str, str], offset: int, at_unix_ms: int, *, alarm: str, by: str, reason: str
) -> dict[str, Any]:
    """The fact that readers find where an administrator skipped one: which, and why."""
    from_zone, to_zone = zones
    key = sha256("\n".join(("skipped", from_zone, to_zone, str(offset))).encode()).hexdigest()
    return {
        "envelope": {
            "message_id": f"skipped-{key}",
            "from_zone": from_zone,
            "to_zone": to_zone,
            "produced_at_unix_ms": at_unix_ms,
            "labels": {"ergon": "skipped"},
        },
        "fact": {
            "subject": f"skipped_fact:{offset}",
            "predicate": "was_skipped",
            "object_json": {"offset": offset, "alarm": alarm, "by": by, "reason": reason},
        },
    }


def _check_reference(told: dict[str, Any], at: str) -> None:
    for name in ("bucket", "key", "digest"):
        if not isinstance(told.get(name), str):
            refuse(f"{at}/{name}", "must be a text, as the answer to the upload has it")
    if not _is_whole(told.get("size")):
        refuse(f"{at}/size", "must be a whole number, as the answer to the upload has it")


@lru_cache(REMEMBERED)
def _are_zones(from_zone: str, to_zone: str) -> bool:
    zones = (from_zone, to_zone)
    return from_zone != to_zone and all(0 < len(zone) <= LONGEST_TEXT and not has_controls(zone) for zone in zones)


def _check_labels(labels: Any, limits: Limits) -> None:
    if not isinstance(labels, dict):
        refuse("/envelope/labels", "must be an object of texts")
    if len(labels) > limits.labels:
        refuse("/envelope/labels", f"has {len(labels)} entries; {limits.labels} are allowed")
    for name, value in labels.items():
        if not isinstance(name, str) or not 0 < len(name) <= limits.label_name:
            refuse(f"/envelope/labels/{_escaped(name)}", f"must have a name of 1 to {limits.label_name} characters")
        if not isinstance(value, str) or len(value) > limits.label_value:
            refuse(f"/envelope/labels/{_escaped(name)}", f"must be a text of at most {limits.label_value} characters")


def _is_whole(number: Any) -> bool:
    """1.0 is the same number as 1."""
    return type(number) is int or (type(number) is float and number.is_integer())


def _check_text(text: Any, longest: int, at: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= longest:
        refuse(at, f"must be a text of 1 to {longest} characters")
    if not text.isprintable() and has_controls(text):
        refuse(at, "must have no control characters")


def _only(value: Any, required: tuple[str, ...], allowed: frozenset[str], at: str) -> None:
    if not isinstance(value, dict):
        refuse(at, "must be an object")
    for name in required:
        if name not in value:
            refuse(f"{at}/{name}", "is missing")
    if len(value) > len(required):
        for name in value:
            if name not in allowed:
                refuse(f"{at}/{_escaped(name)}", "is unknown")


def _escaped(name: object) -> str:
    told = str(name).encode("utf-8", "replace").decode()
    return told.replace("~", "~0").replace("/", "~1")
