"""Rows of the engines: policies and pipelines, transactions and their attempts, dead letters, workers, schedules.

Only the verbs write them. Hot tables carry no foreign keys in the database: each would cost more than the row itself,
and what they point at is never deleted.
"""

from engines.models.dead_letters import BulkItem, BulkOperation, DeadLetter, DeadLetterGroup, DeadLetterHour
from engines.models.pipelines import DIRECTIONS, KINDS, Pipeline, Policy, PolicyVersion, Schedule
from engines.models.transactions import Attempt, Throughput, TransactionRecord, WaitingSample
from engines.models.workers import Leadership, Worker

__all__ = [
    "DIRECTIONS",
    "KINDS",
    "Attempt",
    "BulkItem",
    "BulkOperation",
    "DeadLetter",
    "DeadLetterGroup",
    "DeadLetterHour",
    "Leadership",
    "Pipeline",
    "Policy",
    "PolicyVersion",
    "Schedule",
    "Throughput",
    "TransactionRecord",
    "WaitingSample",
    "Worker",
]
