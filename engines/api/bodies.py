"""The shapes of bodies: the fields there are, and no others. What they hold is for the verbs to judge."""

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from rest_framework.exceptions import ValidationError

from engines import policies
from engines.api import times
from engines.conf import settings
from engines.transactions import Draft
from ergon_site.access.api.bodies import FAULTS_TOLD, LONGEST_NAME
from ergon_site.access.api.parsers import BATCH_LIMIT
from ergon_site.access.core.texts import LONGEST_REASON

BATCH = 1000
POLICY_LIMIT = policies.LARGEST
OPTIONAL = ("id", "priority", "available_at", "dedupe_key", "correlation_id", "metadata")


def payload_limit() -> int:
    """For a payload and metadata that are just small enough, in whatever spelling they come."""
    return 4 * settings().payload_limit


def batch_limit() -> int:
    return max(BATCH_LIMIT, payload_limit())


def submission(body: Any) -> dict[str, Any]:
    """The arguments for `transactions.submit`."""
    asked = _fields(body, required=("pipeline", "payload"), optional=OPTIONAL)
    _require_text(asked, "pipeline", LONGEST_NAME)
    if asked.get("available_at") is not None:
        asked["available_at"] = _time("available_at", asked["available_at"])
    return asked


def batch(body: Any, *, source: str) -> list[tuple[str, Draft]]:
    """The arguments for `transactions.submit_together`."""
    items = _fields(body, required=("transactions",))["transactions"]
    if not isinstance(items, list) or not 0 < len(items) <= BATCH:
        raise ValidationError({"transactions": f"This must be a list of 1 to {BATCH:,} transactions."})
    entries: list[tuple[str, Draft]] = []
    faults: dict[str, Any] = {}
    for index, item in enumerate(items):
        try:
            asked = submission(item)
        except ValidationError as error:
            faults[str(index)] = error.detail
        else:
            entries.append((asked.pop("pipeline"), Draft(**asked, source=source)))
    if faults:
        raise ValidationError({"transactions": dict(islice(faults.items(), FAULTS_TOLD))})
    return entries


def decision(body: Any) -> dict[str, Any]:
    """A reason."""
    return _reasoned(_fields(body, required=("reason",)))


def replay(body: Any) -> dict[str, Any]:
    """A reason, and a payload if it is another one now."""
    return _reasoned(_fields(body, required=("reason",), optional=("payload",)))


def version(body: Any) -> dict[str, Any]:
    return _reasoned(_fields(body, required=("policy", "reason")))


def first_version(body: Any) -> dict[str, Any]:
    asked = _reasoned(_fields(body, required=("kind", "policy", "reason")))
    if asked["kind"] not in ("consumer", "producer"):
        raise ValidationError({"kind": "This must be consumer or producer."})
    return asked


def _fields(body: Any, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(body, Mapping):
        msg = "This must be an object."
        raise ValidationError(msg)
    faults = {name: ["This field is required."] for name in required if name not in body}
    unknown = (name for name in body if name not in required and name not in optional)
    faults |= {name: ["There is no such field."] for name in islice(unknown, FAULTS_TOLD)}
    if faults:
        raise ValidationError(faults)
    return dict(body)


def _reasoned(asked: dict[str, Any]) -> dict[str, Any]:
    _require_text(asked, "reason", LONGEST_REASON)
    return asked


def _require_text(asked: dict[str, Any], name: str, longest: int) -> None:
    text = asked[name]
    if not isinstance(text, str) or not text.strip() or len(text) > longest:
        raise ValidationError({name: f"This must be a text of 1 to {longest} characters."})


def _time(name: str, text: Any) -> datetime:
    try:
        return times.instant(text)
    except ValueError as error:
        raise ValidationError({name: str(error)}) from None
