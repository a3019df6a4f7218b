"""VERBS: retire a consumer, a boundary, a zone; bring a boundary or a zone back. Rows and facts stay readable."""

from datetime import timedelta
from typing import Any, TypeVar

from django.db.models import Q
from django.db.models.functions import Now

from ergon_site.access import audit
from ergon_site.access.core.texts import is_storable
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts.conf import settings
from facts.core.errors import ProvisioningError, UnknownZoneError
from facts.ledger import boundaries, reading
from facts.models import Boundary, Consumer, Zone

# A program that reads as a consumer fetches at least this often: the longest that a fetch waits for facts.
FETCHES_WITHIN = timedelta(seconds=reading.LONGEST_WAIT)
NAMED = 5

Row = TypeVar("Row", Zone, Boundary, Consumer)


@retry_conflicts
@short_transaction()
def retire_consumer(name: str, *, by: str, reason: str) -> Consumer:
    """Retire a consumer: it cannot read any more and holds back no truncation."""
    consumer: Any = _lock(reading.find_consumer(name))
    if consumer.held_by and consumer.held_until and consumer.held_until > consumer.read_at:
        msg = f"the process {consumer.held_by} reads as {name!r}: stop it first"
        raise ProvisioningError(msg)
    if consumer.fetched_at and consumer.fetched_at > consumer.read_at - FETCHES_WITHIN:
        seconds = f"{FETCHES_WITHIN.total_seconds():.0f}"
        msg = f"a program reads as {name!r}: stop it first; it has fetched within the last {seconds} seconds"
        raise ProvisioningError(msg)
    before = {"boundary": str(consumer.boundary), "cursor": consumer.cursor}
    retired: Consumer = _retire(consumer, f"consumer {name}", before, by=by, reason=reason)
    return retired


@retry_conflicts
@short_transaction()
def retire_boundary(from_zone: str, to_zone: str, *, by: str, reason: str) -> Boundary:
    """Nothing is appended to this boundary or handed over any more."""
    found = boundaries.find(from_zone, to_zone)
    boundary = _lock(found)
    _refuse_again(boundary, f"the boundary {found}")
    readers = Consumer.objects.filter(boundary=found, retired_at__isnull=True)
    _refuse_users("consumers still read this boundary", list(readers.values_list("name", flat=True)[: NAMED + 1]))
    before = {name: getattr(boundary, name) for name in ("first_offset", "next_offset", "frontier")}
    return _retire(boundary, f"boundary {found}", before, by=by, reason=reason)


@retry_conflicts
@short_transaction()
def retire_zone(name: str, *, by: str, reason: str) -> Zone:
    """No boundary can be made from this zone or to it any more."""
    found = Zone.objects.filter(name=name).first() if is_storable(name) else None
    if found is None:
        msg = f"there is no zone named {name!r}"
        raise UnknownZoneError(msg)
    zone = _lock(found)
    _refuse_again(zone, f"the zone {name!r}")
    if name == settings().zone:
        msg = f"this deployment is the zone {name!r}: ERGON_ZONE names it"
        raise ProvisioningError(msg)
    beside = boundaries.in_use().filter(Q(from_zone=found) | Q(to_zone=found))
    _refuse_users("boundaries still lead from this zone or to it", [str(one) for one in beside[: NAMED + 1]])
    return _retire(zone, f"zone {name}", None, by=by, reason=reason)


def bring_back(row: Zone | Boundary, **changes: Any) -> None:
    """Use it again, as part of a verb that makes it anew."""
    changes |= {"retired_at": None, "retired_by": None, "retired_reason": None}
    type(row)._default_manager.filter(pk=row.pk).update(**changes)  # noqa: SLF001 (either model's)
    row.refresh_from_db()


def _lock(row: Row) -> Row:
    """The row with `read_at`, the database's time when it was locked."""
    rows: Any = type(row)._default_manager.select_for_update().annotate(read_at=Now())  # noqa: SLF001
    locked: Row = rows.get(pk=row.pk)
    return locked


def _refuse_again(row: Zone | Boundary, what: str) -> None:
    if row.is_retired:
        msg = f"{what} was retired already"
        raise ProvisioningError(msg)


def _refuse_users(what: str, names: list[str]) -> None:
    if names:
        listed = ", ".join(names[:NAMED]) + (" and more" if len(names) > NAMED else "")
        msg = f"{what}: {listed}; retire them first"
        raise ProvisioningError(msg)


def _retire(row: Row, target: str, before: dict[str, Any] | None, *, by: str, reason: str) -> Row:
    rows: Any = type(row)._default_manager.filter(pk=row.pk)  # noqa: SLF001
    rows.update(retired_at=Now(), retired_by=by, retired_reason=reason)
    action = f"{target.partition(' ')[0]}.retire"
    audit.record(actor=by, action=action, target=target, reason=reason, before=before)
    row.refresh_from_db()
    return row
