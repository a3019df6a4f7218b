"""The shapes of bodies: the fields there are, and no others. What they hold is for the verbs to judge."""

from itertools import islice
from typing import Any

from rest_framework.exceptions import ValidationError

from engines.conf import settings
from engines.transactions import Draft
from ergon_site.access import parameters
from ergon_site.access.api.bodies import FAULTS_TOLD, LONGEST_NAME, DecisionSerializer, object_fields, shaped

BATCH = 1000
OPTIONAL = ("id", "priority", "available_at", "dedupe_key", "correlation_id", "metadata")


class TakesPayload:
    """A view whose body holds a payload."""

    @property
    def body_limit(self) -> int:
        """For a payload and metadata that are just small enough, in whatever spelling they come."""
        return 4 * settings().payload_limit


# By hand, since a thousand of them go through it at once: `python -m benchmarks queue` shows what a serializer costs.
def submission(body: Any) -> dict[str, Any]:
    """The arguments for `transactions.submit`."""
    asked = object_fields(body, required=("pipeline", "payload"), optional=OPTIONAL)
    name = asked["pipeline"]
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise ValidationError({"pipeline": f"This must be a text of 1 to {LONGEST_NAME} characters."})
    if asked.get("available_at") is not None:
        try:
            asked["available_at"] = parameters.instant(asked["available_at"])
        except ValueError as error:
            raise ValidationError({"available_at": str(error)}) from None
    return asked


def batch(body: Any, *, source: str) -> list[tuple[str, Draft]]:
    """The arguments for `transactions.submit_together`."""
    items = object_fields(body, required=("transactions",))["transactions"]
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


def version(body: Any, *, is_first: bool) -> dict[str, Any]:
    """A policy and a reason, and of a new policy its kind; what the policy says is for the verb to judge."""
    asked = object_fields(body, required=("kind", "policy", "reason") if is_first else ("policy", "reason"))
    asked |= shaped(DecisionSerializer, {"reason": asked["reason"]})
    if is_first and asked["kind"] not in ("consumer", "producer"):
        raise ValidationError({"kind": "This must be consumer or producer."})
    return asked
