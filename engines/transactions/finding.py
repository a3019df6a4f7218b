"""A transaction by its id."""

from engines.models import TransactionRecord
from engines.transactions.errors import TransactionUnknownError


def find(uid: str) -> TransactionRecord:
    """The record of a transaction, with its pipeline."""
    record = TransactionRecord.objects.select_related("pipeline").filter(uid=uid).first()
    if record is None:
        raise TransactionUnknownError(uid)
    return record
