"""VERBS: note success, note failure, raise alarm. What came of a handoff moves the gate."""

from typing import Any

import structlog
from django.db import transaction
from django.db.models.functions import Now

from ergon_site.access.database.retrying import retry_conflicts
from facts.core import gates
from facts.core.gates import Gate
from facts.models import Boundary

log = structlog.get_logger("ergon.facts")


@retry_conflicts
@transaction.atomic
def note_success(boundary_id: int, *, head: int | None) -> Gate:
    """A handoff went well; `head` is the newest offset of a peer."""
    boundary = Boundary.objects.select_for_update().get(pk=boundary_id)
    before = Gate(boundary.gate)
    newest = boundary.next_offset - 1 if head is None else head
    # Whoever closed it meanwhile has the last word.
    after = before if boundary.gate_by else gates.after_success(before, newest - boundary.frontier)
    changes: dict[str, Any] = {"failures": 0, "source_head": head}
    if after is not before:
        changes |= {"gate": after.value, "gate_at": Now(), "gate_reason": ""}
        log.warning("gate_opened", boundary=str(boundary), gate=after.value)
    if any(getattr(boundary, name) != value for name, value in changes.items()):
        Boundary.objects.filter(pk=boundary_id).update(**changes)
    return after


@retry_conflicts
@transaction.atomic
def note_failure(boundary_id: int, reason: str) -> int:
    """A handoff failed; how many have in a row."""
    boundary = Boundary.objects.select_for_update().get(pk=boundary_id)
    failures = boundary.failures + 1
    changes: dict[str, Any] = {"failures": failures}
    after = gates.after_failure(Gate(boundary.gate), failures)
    if not boundary.gate_by and after != boundary.gate:
        changes |= {"gate": after.value, "gate_at": Now(), "gate_reason": reason}
        log.error("gate_closed", boundary=str(boundary), reason=reason, failures=failures)
    Boundary.objects.filter(pk=boundary_id).update(**changes)
    return failures


def raise_alarm(boundary_id: int, alarm: str) -> None:
    """Hand nothing more over until a person has looked and opened the gate."""
    Boundary.objects.filter(pk=boundary_id).update(alarm=alarm)
    boundary = Boundary.objects.select_related("from_zone", "to_zone").get(pk=boundary_id)
    log.error("handoff_stopped", boundary=str(boundary), alarm=alarm)
