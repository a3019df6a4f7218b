"""What tests of the boundary share: zones, boundaries, facts, clients."""

from typing import Any

from facts import provisioning
from facts.models import Boundary, Zone

PLANT, OFFICE = "Plant A", "Enterprise"


def make_boundary(from_zone: str = PLANT, to_zone: str = OFFICE, **plan: Any) -> Boundary:
    for name in (from_zone, to_zone):
        if not Zone.objects.filter(name=name).exists():
            provisioning.create_zone(name, by="tests")
    return provisioning.create_boundary(from_zone, to_zone, by="tests", **plan)


def draft(number: int | str = 1, **changes: Any) -> dict[str, Any]:
    """A fact; changes of the envelope by its field names, `fact` and `object_json` as they are."""
    fact = {
        "subject": f"work_order:WO-{number}",
        "predicate": "was_released",
        "object_json": changes.pop("object_json", {"quantity": 12, "by": "Maria"}),
        **changes.pop("fact", {}),
    }
    envelope = {
        "message_id": f"order-{number}-released",
        "from_zone": PLANT,
        "to_zone": OFFICE,
        "produced_at_unix_ms": 1741248600000,
        **changes,
    }
    return {"envelope": envelope, "fact": fact}
