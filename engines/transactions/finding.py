"""A transaction by its id."""

from engines.models import TransactionRecord
from engines.transactions.errors import TransactionUnknownError
from ergon_site.access.core.texts import is_storable


def find(uid: str) -> TransactionRecord:
    """The record of a transaction, with its pipeline."""
    rows = TransactionRecord.objects.select_related("pipeline").filter(uid=uid)
    record = rows.first() if is_storable(uid) else None
    if record is None:
        raise TransactionUnknownError(uid)
    return record
