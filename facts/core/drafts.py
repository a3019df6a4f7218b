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


def check(draft: Any, limits: Limits, at: str = "") -> None:
    """Refuse what is no fact, by the name of its first fault."""
    _only(draft, ("envelope", "fact"), frozenset({"envelope", "fact"}), at)
    envelope, fact = draft["envelope"], draft["fact"]
    _only(envelope, ENVELOPE_REQUIRED, ENVELOPE, f"{at}/envelope")
    _only(fact, FACT_REQUIRED, FACT, f"{at}/fact")
    _check_envelope(envelope, limits, f"{at}/envelope")
    _check_text(fact["subject"], limits.subject, f"{at}/fact/subject")
    _check_text(fact["predicate"], limits.predicate, f"{at}/fact/predicate")
    if not SUBJECT.fullmatch(fact["subject"]):
        _refuse(f"{at}/fact/subject", "must be kind:id or kind:scope/id")
    if not PREDICATE.fullmatch(fact["predicate"]):
        _refuse(f"{at}/fact/predicate", "must be in lower_snake_case")


def reference_in(fact: Mapping[str, Any], at: str = "") -> Reference | None:
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
            _refuse(f"{at}/fact/object_json/{name}", f"must be {words}, as the answer to the upload has it")
    return Reference(told["bucket"], told["key"], told["digest"], told["size"])


def _check_envelope(envelope: dict[str, Any], limits: Limits, at: str) -> None:
    _check_text(envelope["message_id"], limits.message_id, f"{at}/message_id")
    for name in ("from_zone", "to_zone"):
        _check_text(envelope[name], LONGEST_TEXT, f"{at}/{name}")
    if envelope["from_zone"] == envelope["to_zone"]:
        _refuse(f"{at}/to_zone", "must be another zone than from_zone")
    produced = envelope["produced_at_unix_ms"]
    is_number = isinstance(produced, int | float) and not isinstance(produced, bool)
    if not is_number or not 0 <= produced <= LATEST or produced != int(produced):
        _refuse(f"{at}/produced_at_unix_ms", "must be a whole number of milliseconds since 1970")
    for name in TEXTS:
        if name in envelope:
            _check_text(envelope[name], LONGEST_TEXT, f"{at}/{name}")
    if "labels" in envelope:
        _check_labels(envelope["labels"], limits, f"{at}/labels")


def _check_labels(labels: Any, limits: Limits, at: str) -> None:
    if not isinstance(labels, dict):
        _refuse(at, "must be an object of texts")
    if len(labels) > limits.labels:
        _refuse(at, f"has {len(labels)} entries; {limits.labels} are allowed")
    for name, value in labels.items():
        here = f"{at}/{_escaped(name)}"
        if not 0 < len(name) <= limits.label_name:
            _refuse(here, f"must have a name of 1 to {limits.label_name} characters")
        if not isinstance(value, str) or len(value) > limits.label_value:
            _refuse(here, f"must be a text of at most {limits.label_value} characters")


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
    if len(value) > len(required) or not allowed.issuperset(value):
        for name in value:
            if name not in allowed:
                _refuse(f"{at}/{_escaped(name)}", "is not known here")


def _refuse(pointer: str, what: str) -> NoReturn:
    name = pointer.rpartition("/")[2] or "the body"
    msg = f"{name} {what}"
    raise InvalidFactError(msg, pointer)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
