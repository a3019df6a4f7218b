"""VERBS of durable transactions: from submission to the end, and what people do to them on the way.

Each is one database transaction, correct on PostgreSQL and on SQLite, and joins the caller's transaction if there is
one.
"""

from engines.transactions.claiming import (
    begin as begin,
    claim as claim,
    heartbeat as heartbeat,
    is_any_lapsed as is_any_lapsed,
    release as release,
    rescue as rescue,
)
from engines.transactions.counting import (
    count_durations as count_durations,
    count_ends as count_ends,
    count_tally as count_tally,
    fold_counts as fold_counts,
)
from engines.transactions.decisions import (
    cancel as cancel,
    find as find,
    replay as replay,
    replay_letter as replay_letter,
    reveal as reveal,
)
from engines.transactions.errors import (
    IdTakenError as IdTakenError,
    NotFinishedError as NotFinishedError,
    NotPendingError as NotPendingError,
    PipelineUnknownError as PipelineUnknownError,
    RefusedError as RefusedError,
    SubmissionError as SubmissionError,
    TransactionUnknownError as TransactionUnknownError,
)
from engines.transactions.leases import Lease as Lease, LeasedTransaction as LeasedTransaction
from engines.transactions.pruning import MOST_COUNTED as MOST_COUNTED, prunable as prunable, prune as prune
from engines.transactions.settling import (
    NOTED_AT_ONCE as NOTED_AT_ONCE,
    Settlement as Settlement,
    find_written as find_written,
    lock as lock,
    make_ready as make_ready,
    note as note,
    postpone as postpone,
    prepare as prepare,
    settle as settle,
)
from engines.transactions.submitting import (
    Draft as Draft,
    Submitted as Submitted,
    check as check,
    submit as submit,
    submit_many as submit_many,
    submit_together as submit_together,
)
