"""VERBS: remember, forget. Message ids outlive their facts, so that a late repeat is still recognised."""

from collections.abc import Collection
from datetime import timedelta

from django.db import connection
from django.db.models.functions import Now

from facts.models import Boundary, Fact, ForwardedFact, RememberedMessage

# Where a boundary does not say for how many days ids are remembered: this many more than facts are kept.
BEYOND = 30
AT_ONCE = 5000
REMEMBER = """
INSERT INTO facts_rememberedmessage (boundary_id, message_id, "offset", digest)
SELECT boundary_id, message_id, "offset", digest FROM {table} WHERE boundary_id = %s AND "offset" <= %s
    ON CONFLICT DO NOTHING
"""


def remember(boundary: Boundary, buffer: type[Fact] | type[ForwardedFact], last: int) -> None:
    """Keep the ids of the facts up to an offset, in the transaction that removes these facts."""
    table = buffer._meta.db_table  # noqa: SLF001
    with connection.cursor() as cursor:
        cursor.execute(REMEMBER.format(table=table), [boundary.pk, last])


def analyze() -> None:
    """Have appends planned anew: a plan that was made while the table was small reads all of it."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE facts_rememberedmessage")


def known(boundary: Boundary, ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """Offset and digest of those of the ids whose facts have been truncated."""
    if boundary.removed_offset is None:
        return {}  # none ever was
    rows = RememberedMessage.objects.filter(boundary=boundary, message_id__in=ids)
    found = rows.values_list("message_id", "offset", "digest")
    return {message_id: (offset, digest) for message_id, offset, digest in found}


def ids_at(boundary: Boundary, offsets: Collection[int]) -> dict[int, str]:
    """The message ids of those of the offsets whose facts have been truncated. Rarely asked: no index has offsets."""
    if not offsets:
        return {}
    rows = RememberedMessage.objects.filter(boundary=boundary, offset__in=offsets)
    return dict(rows.values_list("offset", "message_id"))


def forget() -> int:
    """Remove the ids whose time is over; how many."""
    forgotten = 0
    for boundary in Boundary.objects.all():
        before = Now() - timedelta(days=dedupe_days(boundary))
        old = RememberedMessage.objects.filter(boundary=boundary, truncated_at__lt=before).order_by("truncated_at")
        # What was truncated in one transaction has one time, and goes together.
        while times := list(old.values_list("truncated_at", flat=True)[:AT_ONCE]):
            some = old.filter(truncated_at__lte=times[-1]).order_by()
            forgotten += some._raw_delete(some.db)  # noqa: SLF001 (nothing refers to them)
    return forgotten


def dedupe_days(boundary: Boundary) -> int:
    """For how many days ids are remembered after truncation."""
    return boundary.keep_days + BEYOND if boundary.dedupe_days is None else boundary.dedupe_days
