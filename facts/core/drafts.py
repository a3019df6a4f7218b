"""What a fact must be: the rules for its envelope and its statement. Business schemas are nobody's business here."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from facts.core.errors import InvalidFactError
from facts.core.limits import Limits

ENVELOPE_REQUIRED = ("message_id", "from_zone", "to_zone", "produced_at_unix_ms")
ENVELOPE = frozenset(
    {*ENVELOPE_REQUIRED, "correlation_id", "causation_id", "labels", "object_media_type", "object_schema"}
)
FACT_REQUIRED = ("subject", "predicate", "object_json")
FACT = frozenset(FACT_REQUIRED)
_BOTH = frozenset({"envelope", "fact"})
TEXTS = ("correlation_id", "causation_id", "object_media_type", "object_schema")
LONGEST_TEXT = 256
LATEST = 2**53 - 1

SUBJECT = re.compile(
    r"[A-Za-z][A-Za-z0-9_.\-]*:[^\s/\x00-\x1f](?:[^/\x00-\x1f]*[^\s/\x00-\x1f])?"
    r"(?:/[^\s/\x00-\x1f](?:[^/\x00-\x1f]*[^\s/\x00-\x1f])?)?"
)
PREDICATE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


class Reference(NamedTuple):
    """The artifact that a fact is about."""

    bucket: str
    key: str
    digest: str
    size: int


def check(draft: Any, limits: Limits) -> None:
    """Refuse what is no fact, by the name of its first fault."""
    _only(draft, ("envelope", "fact"), _BOTH, "")
    envelope, fact = draft["envelope"], draft["fact"]
    _only(envelope, ENVELOPE_REQUIRED, ENVELOPE, "/envelope")
    _only(fact, FACT_REQUIRED, FACT, "/fact")
    _check_envelope(envelope, limits)
    _check_text(fact["subject"], limits.subject, "/fact/subject")
    _check_text(fact["predicate"], limits.predicate, "/fact/predicate")
    if not SUBJECT.fullmatch(fact["subject"]):
        _refuse("/fact/subject", "must be kind:id or kind:scope/id")
    if not PREDICATE.fullmatch(fact["predicate"]):
        _refuse("/fact/predicate", "must be in lower_snake_case")


def reference_in(fact: Mapping[str, Any]) -> Reference | None:
    """The artifact that `object_json` refers to: whatever names a bucket and a key refers to one."""
    told = fact["object_json"]
    if not isinstance(told, dict) or "bucket" not in told or "key" not in told:
        return None
    for name, kind, words in (
        ("bucket", str, "a text"),
        ("key", str, "a text"),
        ("digest", str, "a text"),
        ("size", int, "a whole number"),
    ):
        if not isinstance(told.get(name), kind) or isinstance(told.get(name), bool):
            _refuse(f"/fact/object_json/{name}", f"must be {words}, as the answer to the upload has it")
    return Reference(told["bucket"], told["key"], told["digest"], told["size"])


def _check_envelope(envelope: dict[str, Any], limits: Limits) -> None:
    _check_text(envelope["message_id"], limits.message_id, "/envelope/message_id")
    _check_text(envelope["from_zone"], LONGEST_TEXT, "/envelope/from_zone")
    _check_text(envelope["to_zone"], LONGEST_TEXT, "/envelope/to_zone")
    if envelope["from_zone"] == envelope["to_zone"]:
        _refuse("/envelope/to_zone", "must be another zone than from_zone")
    produced = envelope["produced_at_unix_ms"]
    is_number = type(produced) is int or (type(produced) is float and produced.is_integer())
    if not is_number or not 0 <= produced <= LATEST:
        _refuse("/envelope/produced_at_unix_ms", "must be a whole number of milliseconds since 1970")
    if len(envelope) > len(ENVELOPE_REQUIRED):
        for name in TEXTS:
            if name in envelope:
                _check_text(envelope[name], LONGEST_TEXT, f"/envelope/{name}")
        if "labels" in envelope:
            _check_labels(envelope["labels"], limits)


def _check_labels(labels: Any, limits: Limits) -> None:
    if not isinstance(labels, dict):
        _refuse("/envelope/labels", "must be an object of texts")
    if len(labels) > limits.labels:
        _refuse("/envelope/labels", f"has {len(labels)} entries; {limits.labels} are allowed")
    for name, value in labels.items():
        if not 0 < len(name) <= limits.label_name:
            _refuse(f"/envelope/labels/{_escaped(name)}", f"must have a name of 1 to {limits.label_name} characters")
        if not isinstance(value, str) or len(value) > limits.label_value:
            _refuse(f"/envelope/labels/{_escaped(name)}", f"must be a text of at most {limits.label_value} characters")


def _check_text(text: Any, longest: int, at: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= longest:
        _refuse(at, f"must be a text of 1 to {longest} characters")
    if not text.isprintable():
        _refuse(at, "must have no control characters")


def _only(value: Any, required: tuple[str, ...], allowed: frozenset[str], at: str) -> None:
    if not isinstance(value, dict):
        _refuse(at, "must be an object")
    for name in required:
        if name not in value:
            _refuse(f"{at}/{name}", "is missing")
    if len(value) > len(required):
        for name in value:
            if name not in allowed:
                _refuse(f"{at}/{_escaped(name)}", "is not known here")


def _refuse(pointer: str, what: str) -> NoReturn:
    name = pointer.rpartition("/")[2] or "the body"
    msg = f"{name} {what}"
    raise InvalidFactError(msg, pointer)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
