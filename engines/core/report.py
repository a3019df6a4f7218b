"""The report of a loop."""

from typing import NamedTuple


class FailedTransaction(NamedTuple):
    """A transaction that ended in failure, and the exception that ended it."""

    id: str
    exception: Exception


class Report(NamedTuple):
    """The account of one loop."""

    processed: int
    succeeded: int
    failed: int
    skipped: int
    elapsed: float
    stopped_by: str
    failures: tuple[FailedTransaction, ...]
