"""VERB: confirm. A consumer has everything up to an offset."""

from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from ergon_site.access.database.retrying import retry_conflicts
from facts import telemetry
from facts.core.errors import HistoryTruncatedError, InvalidFactError, OffsetOutOfRangeError
from facts.ledger.reading import find_consumer, newest
from facts.models import Consumer


@retry_conflicts
@transaction.atomic
def confirm(name: str, offset: Any) -> int:
    """Move the cursor forward, never back; where it stands."""
    telemetry.confirms.add(1)
    if type(offset) is not int or offset < 0:
        msg = "offset must be a whole number from 0"
        raise InvalidFactError(msg, "/offset")
    consumer = find_consumer(name)
    if offset == consumer.cursor:
        return offset  # even if it has been removed since
    boundary = consumer.boundary
    if not boundary.is_remote and offset < boundary.first_offset:
        msg = f"facts before offset {boundary.first_offset:,} have been removed"
        raise HistoryTruncatedError(msg, "/offset")
    if offset > newest(boundary):
        msg = f"there is no offset {offset:,} yet; the newest is {newest(boundary):,}"
        raise OffsetOutOfRangeError(msg, "/offset")
    # In one statement, so that a late confirmation never takes back an earlier one.
    Consumer.objects.filter(pk=consumer.pk, cursor__lt=offset).update(cursor=offset, confirmed_at=Now())
    return Consumer.objects.values_list("cursor", flat=True).get(pk=consumer.pk)
