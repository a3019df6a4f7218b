"""The zones, consumers and buckets that a client may use. What is not granted is refused."""

from django.db.models import Q

from ergon_site.access.api_identity import Caller
from facts.core.errors import NotAuthorizedError
from facts.ledger import Entry


def check_append(caller: Caller, entry: Entry) -> None:
    _check(caller, entry.from_zone in caller.zones, f"send from the zone {entry.from_zone!r}", "/envelope/from_zone")
    _check(caller, entry.to_zone in caller.target_zones, f"send to the zone {entry.to_zone!r}", "/envelope/to_zone")
    for reference in entry.references:
        is_allowed = reference.bucket in caller.buckets
        _check(caller, is_allowed, f"use the bucket {reference.bucket!r}", f"{reference.at}/bucket")


def check_boundary(caller: Caller, from_zone: str, to_zone: str) -> None:
    """Both sides may ask what has crossed, for whichever they speak."""
    is_allowed = from_zone in caller.zones or to_zone in caller.zones
    _check(caller, is_allowed, f"read the boundary from {from_zone!r} to {to_zone!r}")


def check_operation(caller: Caller, from_zone: str, to_zone: str) -> None:
    """The same, for those who operate a boundary; a platform operates all of them."""
    is_allowed = "platform" in caller.scopes or not caller.zones.isdisjoint((from_zone, to_zone))
    _check(caller, is_allowed, f"operate the boundary from {from_zone!r} to {to_zone!r}")


def at_boundaries(caller: Caller) -> Q:
    """The boundaries that a client operates."""
    zones = sorted(caller.zones)
    return Q() if "platform" in caller.scopes else Q(from_zone__name__in=zones) | Q(to_zone__name__in=zones)


def check_consumer(caller: Caller, name: str) -> None:
    _check(caller, name in caller.consumers, f"use the consumer {name!r}")


def check_bucket(caller: Caller, name: str) -> None:
    _check(caller, name in caller.buckets, f"use the bucket {name!r}")


def _check(caller: Caller, is_allowed: bool, what: str, pointer: str = "") -> None:  # noqa: FBT001
    if not is_allowed:
        msg = f"the client {caller.name!r} may not {what}"
        raise NotAuthorizedError(msg, pointer)
