"""VERBS: note success, note failure, raise alarm. What came of a handoff moves the gate."""

from typing import Any

import structlog
from django.db.models.functions import Now

from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts.core import gates
from facts.core.errors import AlarmError
from facts.core.gates import Gate
from facts.models import Boundary

# The time of a peer's last answer is written this often, in seconds.
HEARD_EVERY = 1.0

log = structlog.get_logger("ergon.facts")


@retry_conflicts
@short_transaction()
def note_success(boundary_id: int, *, head: int | None) -> Gate:
    """A handoff went well; `head` is the newest offset of a peer."""
    boundary = _locked(boundary_id)
    before = Gate(boundary.gate)
    newest = boundary.next_offset - 1 if head is None else head
    # Whoever closed it meanwhile has the last word.
    after = before if boundary.gate_by else gates.after_success(before, newest - boundary.frontier)
    changes: dict[str, Any] = {"failures": 0, "source_head": head}
    if boundary.is_remote and (boundary.heard_at is None or _silence(boundary) >= HEARD_EVERY):
        changes["heard_at"] = Now()
    if after is not before:
        changes |= {"gate": after.value, "gate_at": Now(), "gate_reason": ""}
        log.warning("gate_opened", boundary=str(boundary), gate=after.value)
    if any(getattr(boundary, name) != value for name, value in changes.items()):
        Boundary.objects.filter(pk=boundary_id).update(**changes)
    return after


@retry_conflicts
@short_transaction()
def note_failure(boundary_id: int, reason: str) -> int:
    """A handoff failed; how many have in a row."""
    boundary = _locked(boundary_id)
    failures: int = boundary.failures + 1
    changes: dict[str, Any] = {"failures": failures}
    after = gates.after_failure(Gate(boundary.gate), failures, _silence(boundary))
    if not boundary.gate_by and after != boundary.gate:
        changes |= {"gate": after.value, "gate_at": Now(), "gate_reason": reason}
        log.error("gate_closed", boundary=str(boundary), reason=reason, failures=failures)
    Boundary.objects.filter(pk=boundary_id).update(**changes)
    return failures


def raise_alarm(boundary_id: int, error: AlarmError) -> None:
    """Hand nothing more over until a person has looked and opened the gate, or skipped what the alarm is about."""
    alarm = error.message
    Boundary.objects.filter(pk=boundary_id).update(alarm=alarm, alarm_offset=error.offset, alarm_last=error.last)
    boundary = Boundary.objects.select_related("from_zone", "to_zone").get(pk=boundary_id)
    log.error("handoff_stopped", boundary=str(boundary), alarm=alarm)


def _locked(boundary_id: int) -> Any:
    return Boundary.objects.select_for_update().annotate(read_at=Now()).get(pk=boundary_id)


def _silence(boundary: Any) -> float:
    """Seconds since a peer last answered a whole handoff. This database's own buffers are never silent."""
    if not boundary.is_remote:
        return 0.0
    last = boundary.heard_at or boundary.handed_over_at or boundary.created_at
    return float((boundary.read_at - last).total_seconds())
