"""VERBS of durable transactions: from submission to the end, and what people do to them on the way.

Each is one database transaction, correct on PostgreSQL and on SQLite, and joins the caller's transaction if there is
one.
"""

from engines.transactions.claiming import begin, claim, heartbeat, release, rescue
from engines.transactions.counting import count_ends, fold_counts
from engines.transactions.decisions import cancel, find, replay, replay_letter, reveal
from engines.transactions.errors import (
    IdTakenError,
    NotFinishedError,
    NotPendingError,
    PipelineUnknownError,
    RefusedError,
    SubmissionError,
    TransactionUnknownError,
)
from engines.transactions.leases import Lease, LeasedTransaction
from engines.transactions.pruning import MOST_COUNTED, prunable, prune
from engines.transactions.settling import Settlement, note, postpone, settle
from engines.transactions.submitting import Draft, Submitted, check, submit, submit_many, submit_together

__all__ = [
    "MOST_COUNTED",
    "Draft",
    "IdTakenError",
    "Lease",
    "LeasedTransaction",
    "NotFinishedError",
    "NotPendingError",
    "PipelineUnknownError",
    "RefusedError",
    "Settlement",
    "SubmissionError",
    "Submitted",
    "TransactionUnknownError",
    "begin",
    "cancel",
    "check",
    "claim",
    "count_ends",
    "find",
    "fold_counts",
    "heartbeat",
    "note",
    "postpone",
    "prunable",
    "prune",
    "release",
    "replay",
    "replay_letter",
    "rescue",
    "reveal",
    "settle",
    "submit",
    "submit_many",
    "submit_together",
]
