"""VERB: count_ends. What ended other than by a settle, for the charts and totals."""

from engines.transactions.statements import statements


def count_ends(pipeline_id: int, *, worker: int = 0, succeeded: int = 0, failed: int = 0, cancelled: int = 0) -> None:
    statements().count_ends(pipeline_id, worker, succeeded, failed, cancelled)
