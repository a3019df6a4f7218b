"""Rows of the engines: policies and pipelines, transactions and their attempts, dead letters, workers, schedules.

Only the verbs write them. Hot tables carry no foreign keys in the database: each would cost more than the row itself,
and what they point at is never deleted.
"""

from engines.models.dead_letters import (
    BulkItem as BulkItem,
    BulkOperation as BulkOperation,
    DeadLetter as DeadLetter,
    DeadLetterGroup as DeadLetterGroup,
    DeadLetterHour as DeadLetterHour,
)
from engines.models.pipelines import (
    DIRECTIONS as DIRECTIONS,
    KINDS as KINDS,
    Pipeline as Pipeline,
    Policy as Policy,
    PolicyRehearsal as PolicyRehearsal,
    PolicyVersion as PolicyVersion,
    Schedule as Schedule,
)
from engines.models.transactions import (
    Attempt as Attempt,
    Durations as Durations,
    Throughput as Throughput,
    TransactionRecord as TransactionRecord,
    WaitingSample as WaitingSample,
)
from engines.models.workers import Leadership as Leadership, Worker as Worker
