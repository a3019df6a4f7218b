"""VERB: skip. An administrator decides not to receive the facts that an alarm is about, and says why."""

from typing import Any

from django.db.models.functions import Now

from ergon_site.access import audit
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from facts.canonical import content_of
from facts.core import drafts
from facts.core.errors import ProvisioningError
from facts.ledger import boundaries, receiving
from facts.ledger.entries import Entry
from facts.ledger.receiving import Arrival
from facts.models import Boundary, ForwardedFact, SkippedFact

MOST_AT_ONCE = 1000


@retry_conflicts
@short_transaction()
def skip(from_zone: str, to_zone: str, offset: int, *, through: int | None = None, by: str, reason: str) -> Boundary:
    """Go past the offset that stopped a boundary with an alarm, up to `through` if the alarm is about several.

    The decision is kept for ever. Readers find a notice at the offset, so that offsets have no gap for them either.
    Where another fact has arrived at the offset, that one stays.
    """
    found = boundaries.find(from_zone, to_zone)
    boundary: Any = Boundary.objects.select_for_update().annotate(read_at=Now()).get(pk=found.pk)
    last = offset if through is None else through
    _check(boundary, offset, last)
    offsets = range(offset, last + 1)
    # Those that hold a fact, or held one that has been truncated.
    rows = ForwardedFact.objects.filter(boundary=boundary, offset__range=(offset, last))
    taken = {*rows.values_list("offset", flat=True), *range(offset, min(last, boundary.frontier) + 1)}
    new = [_notice(found, boundary, one, by, reason) for one in offsets if one not in taken]
    receiving.put(boundary, new, list(offsets))
    SkippedFact.objects.bulk_create(
        SkippedFact(boundary=boundary, offset=one, alarm=boundary.alarm, skipped_by=by, reason=reason)
        for one in offsets
    )
    Boundary.objects.filter(pk=boundary.pk).update(alarm="", alarm_offset=None, alarm_last=None, failures=0)
    told = {"offset": offset, "through": last}
    before = {"alarm": boundary.alarm}
    audit.record(actor=by, action="boundary.skip", target=f"boundary {found}", reason=reason, before=before, after=told)
    found.refresh_from_db()
    return found


def offsets_after(boundary: Boundary, cursor: int) -> frozenset[int]:
    """The offsets after a cursor that are not to be received."""
    rows = SkippedFact.objects.filter(boundary=boundary, offset__gt=cursor)
    return frozenset(rows.values_list("offset", flat=True))


def _check(boundary: Boundary, offset: int, last: int) -> None:
    if not boundary.alarm:
        msg = "there is nothing to skip: the boundary has no alarm"
        raise ProvisioningError(msg)
    if boundary.alarm_offset is None or boundary.alarm_last is None:
        msg = "the alarm names no offset: fix the source, then open the gate"
        raise ProvisioningError(msg)
    if offset != boundary.alarm_offset:
        msg = f"the alarm names offset {boundary.alarm_offset:,}, not {offset:,}: skip that one first"
        raise ProvisioningError(msg)
    if not offset <= last <= boundary.alarm_last:
        msg = f"the alarm names the offsets {offset:,} to {boundary.alarm_last:,}, and none beyond"
        raise ProvisioningError(msg)
    if last - offset >= MOST_AT_ONCE:
        msg = f"at most {MOST_AT_ONCE:,} offsets are skipped at once"
        raise ProvisioningError(msg)


def _notice(named: Boundary, boundary: Any, offset: int, by: str, reason: str) -> Arrival:
    at = int(boundary.read_at.timestamp() * 1000)
    draft = drafts.notice_of_skip(named.zones, offset, at, alarm=boundary.alarm, by=by, reason=reason)
    text, digest, size = content_of(draft)
    envelope, fact = draft["envelope"], draft["fact"]
    names = envelope["message_id"], fact["subject"], fact["predicate"]
    return Arrival(offset, Entry(*named.zones, *names, None, None, text, digest, (), size))
