"""VERBS: create zones, boundaries and consumers; open and close gates; limit. People do this, and it is audited."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models.functions import Now

from ergon_site.access import audit
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts import retiring
from facts.conf import settings
from facts.core import gates, peers
from facts.core.errors import HistoryTruncatedError, OffsetOutOfRangeError, ProvisioningError, UnusableZoneError
from facts.core.gates import Gate
from facts.core.texts import has_controls
from facts.ledger import boundaries
from facts.ledger.reading import newest
from facts.models import Boundary, Consumer, Zone

LONGEST_ZONE, LONGEST_CONSUMER = 256, 100
LARGEST = {"row_ceiling": 2**53, "byte_ceiling": 2**53, "keep_days": 36_500, "dedupe_days": 36_500}
NO_ALARM: dict[str, Any] = {"alarm": "", "alarm_offset": None, "alarm_last": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The ceilings of a store buffer and its retention in days; None for no ceiling.

    Message ids are remembered for `dedupe_days` after truncation; None is 30 days more than facts are kept.
    """

    row_ceiling: int | None = None
    byte_ceiling: int | None = None
    keep_days: int = 30
    dedupe_days: int | None = None


def register_own_zone(zones: Any) -> None:
    """Make the zone that this deployment is, if it is not there. Nobody asks for it, so the audit log names nobody."""
    name = settings().zone
    _check_name("zone", name, LONGEST_ZONE)
    zones.get_or_create(name=name)


def zone_names() -> list[str]:
    """The zones that are in use."""
    return list(Zone.objects.filter(retired_at=None).order_by("name").values_list("name", flat=True))


@retry_conflicts
@short_transaction()
def create_zone(name: str, *, by: str, reason: str = "") -> Zone:
    """Make a zone. The one that this deployment is may be there already, from the migrations."""
    _check_name("zone", name, LONGEST_ZONE)
    zone = Zone.objects.filter(name=name).first()
    before = None
    if zone is None:
        zone = Zone.objects.create(name=name)
    elif zone.is_retired:
        retiring.bring_back(zone)
        before = {"retired": True}
    elif name == settings().zone:
        return zone
    else:
        msg = f"there is a zone named {name!r} already"
        raise ProvisioningError(msg)
    audit.record(actor=by, action="zone.create", target=f"zone {name}", reason=reason, before=before)
    return zone


@retry_conflicts
@short_transaction()
def create_boundary(from_zone: str, to_zone: str, *, by: str, reason: str = "", **plan: Any) -> Boundary:
    """From one zone to another; with a source, it is pulled from there.

    Only administrators may name a source: the token of a peer is sent to it. The callers see to that.
    """
    pair = [_zone(from_zone), _zone(to_zone)]
    if from_zone == to_zone:
        msg = "a boundary needs two different zones"
        raise ProvisioningError(msg)
    there = Boundary.objects.filter(from_zone=pair[0], to_zone=pair[1]).first()
    if there is not None and not there.is_retired:
        msg = f"a boundary from {from_zone!r} to {to_zone!r} already exists"
        raise ProvisioningError(msg)
    if plan.get("source_url"):
        token = plan.get("source_token_file", "")
        if not token:
            msg = "a peer needs a token: name its file in ERGON_PEER_TOKENS"
            raise ProvisioningError(msg, "/source_token")
        peers.check_token_name(token)
        peers.check_address(plan["source_url"], settings().peers)
    if plan.get("with_artifacts") and not plan.get("source_url"):
        msg = "artifacts are pulled from a peer: name it as the source"
        raise ProvisioningError(msg)
    _check_limits({name: plan[name] for name in LARGEST if name in plan})
    if there is not None:
        return _make_anew(there, plan, by=by, reason=reason)
    boundary = Boundary.objects.create(from_zone=pair[0], to_zone=pair[1], **plan)
    audit.record(actor=by, action="boundary.create", target=f"boundary {boundary}", reason=reason, after=plan)
    return boundary


def _make_anew(boundary: Boundary, plan: dict[str, Any], *, by: str, reason: str) -> Boundary:
    """Bring a retired boundary back with another plan. Its facts and offsets are those that it has."""
    if bool(plan.get("source_url")) != boundary.is_remote:
        where = "come from a peer" if boundary.is_remote else "are appended here"
        msg = (
            f"the boundary {boundary} was retired, and its facts {where}: it can only be created again in the same way"
        )
        raise ProvisioningError(msg)
    fresh = {"gate": Gate.NORMAL.value, "gate_by": "", "gate_reason": "", "failures": 0, "heard_at": None}
    retiring.bring_back(boundary, **fresh, **NO_ALARM, **plan)
    target, before = f"boundary {boundary}", {"retired": True}
    audit.record(actor=by, action="boundary.create", target=target, reason=reason, before=before, after=plan)
    return boundary


@retry_conflicts
@short_transaction()
def create_consumer(
    name: str, from_zone: str, to_zone: str, *, start: str | int = "earliest", by: str, reason: str = ""
) -> Consumer:
    """A reader with a place of its own: from the earliest fact, after the latest, or from an offset on."""
    _check_name("consumer", name, LONGEST_CONSUMER)
    if "/" in name or name in {".", ".."}:
        msg = f"a consumer's name is part of an address: it cannot be {name!r}"
        raise ProvisioningError(msg)
    # Locked, so that what it is to begin with is not removed meanwhile.
    boundary = _lock_in_use(from_zone, to_zone)
    there = Consumer.objects.filter(name=name).first()
    if there is not None:
        reserved = f"a consumer named {name!r} was retired, and its name stays reserved: choose another name"
        msg = reserved if there.is_retired else f"there is a consumer named {name!r} already"
        raise ProvisioningError(msg)
    consumer = Consumer.objects.create(name=name, boundary=boundary, cursor=_cursor(boundary, start), created_by=by)
    after = {"boundary": str(boundary), "cursor": consumer.cursor}
    audit.record(actor=by, action="consumer.create", target=f"consumer {name}", reason=reason, after=after)
    return consumer


@retry_conflicts
@short_transaction()
def close_gate(from_zone: str, to_zone: str, *, by: str, reason: str) -> Boundary:
    """Hand nothing over until somebody opens it; both sides work on."""
    boundary = _lock_in_use(from_zone, to_zone)
    changes = {"gate": Gate.AUTONOMOUS.value, "gate_at": Now(), "gate_by": by, "gate_reason": reason}
    return _change(boundary, "close", changes, by=by, reason=reason)


@retry_conflicts
@short_transaction()
def open_gate(from_zone: str, to_zone: str, *, by: str, reason: str) -> Boundary:
    """Hand over again, and forget the alarm: somebody has looked."""
    boundary = _lock_in_use(from_zone, to_zone)
    gate = gates.reopened(backlog(boundary))
    changes = {"gate": gate.value, "gate_at": Now(), "gate_by": "", "gate_reason": "", "failures": 0, **NO_ALARM}
    return _change(boundary, "open", changes, by=by, reason=reason)


@retry_conflicts
@short_transaction()
def limit(from_zone: str, to_zone: str, allowance: Allowance, *, by: str, reason: str) -> Boundary:
    """The limits and retention of a boundary. Nothing is removed by this; what is too much stays."""
    limits = asdict(allowance)
    _check_limits(limits)
    boundary = _lock(from_zone, to_zone)
    before = {name: getattr(boundary, name) for name in limits}
    return _change(boundary, "limit", limits, by=by, reason=reason, before=before, after=limits)


def _change(boundary: Boundary, action: str, changes: dict[str, Any], **told: Any) -> Boundary:
    Boundary.objects.filter(pk=boundary.pk).update(**changes)
    audit.record(actor=told.pop("by"), action=f"boundary.{action}", target=f"boundary {boundary}", **told)
    boundary.refresh_from_db()
    return boundary


def backlog(boundary: Boundary) -> int:
    """The number of facts that have not been handed over."""
    head = boundary.source_head if boundary.is_remote else boundary.next_offset - 1
    return max(0, (head if head is not None else boundary.frontier) - boundary.frontier)


def unconfirmed(boundary: Boundary) -> int:
    """The number of facts not handed over, or not confirmed by the slowest reader here."""
    cursors = [one.cursor for one in boundary.consumers.all() if not one.is_retired]
    if boundary.is_remote or not cursors:
        return backlog(boundary)
    reached = min(cursors) if boundary.frontier < 0 else min(boundary.frontier, *cursors)
    return max(0, boundary.next_offset - 1 - reached)


def _lock(from_zone: str, to_zone: str) -> Boundary:
    return Boundary.objects.select_for_update().get(pk=boundaries.find(from_zone, to_zone).pk)


def _lock_in_use(from_zone: str, to_zone: str) -> Boundary:
    boundary = _lock(from_zone, to_zone)
    if boundary.is_retired:
        raise boundaries.retired(boundary)
    return boundary


def _zone(name: str) -> Zone:
    zone = Zone.objects.filter(name=name).first() if is_storable(name) else None
    if zone is None or zone.is_retired:
        msg = f"there is no zone named {name!r}" if zone is None else f"the zone {name!r} was retired"
        raise UnusableZoneError(msg, name)
    return zone


def _cursor(boundary: Boundary, start: str | int) -> int:
    match start:
        case "earliest":
            return boundary.first_offset - 1
        case "latest":
            return newest(boundary)
    try:
        offset = int(start)
    except ValueError:
        msg = f"a consumer starts at earliest, latest or an offset, not at {start!r}"
        raise ProvisioningError(msg) from None
    if offset < boundary.first_offset:
        msg = f"facts before offset {boundary.first_offset:,} have been removed"
        raise HistoryTruncatedError(msg)
    if offset > newest(boundary) + 1:
        msg = f"there is no offset {offset:,} yet; the newest is {newest(boundary):,}"
        raise OffsetOutOfRangeError(msg)
    return offset - 1


def _check_limits(limits: Mapping[str, int | None]) -> None:
    for name, value in limits.items():
        is_absent = value is None and name != "keep_days"
        if not is_absent and (value is None or not 1 <= value <= LARGEST[name]):
            msg = f"{name} must be a whole number from 1 to {LARGEST[name]:,}"
            raise ProvisioningError(msg, f"/{name}")


def _check_name(what: str, name: str, longest: int) -> None:
    if not 0 < len(name) <= longest or has_controls(name) or name != name.strip():
        msg = f"a {what}'s name has 1 to {longest} printable characters, and no blanks around it"
        raise ProvisioningError(msg)
