"""Retries short database transactions that lost a deadlock or a serialization conflict.

PostgreSQL ends one of the transactions that wait for each other, and nothing of it is left: run again, it succeeds.
Verbs lock rows in one order, so this is rare ("Lock order" in docs/explanation/durable-transactions.md); callers'
transactions and the order of unique indexes are beyond that order.
"""

import random
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import structlog
from django.db import OperationalError, connection

SERIALIZATION_FAILURE, DEADLOCK_DETECTED = "40001", "40P01"
MOST_TRIES = 5
LONGEST_FIRST_WAIT = 0.02

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger("ergon.database")


def retry_conflicts(verb: Callable[P, T]) -> Callable[P, T]:
    """Run the verb again if it loses a conflict, a few times; inside the caller's transaction, only once.

    The verb is one database transaction (`@retry_conflicts` stands above `@transaction.atomic`) or one statement, and
    its arguments can be read twice. A part of the caller's transaction cannot be repeated without the rest of it.
    """

    @wraps(verb)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        # Whether a transaction that begins here is the outermost one. Not by Django's own question, which connects.
        is_connected = connection.connection is not None
        commits = connection.autocommit if is_connected else connection.settings_dict["AUTOCOMMIT"]
        if not commits or connection.in_atomic_block:
            return verb(*arguments, **options)
        for failures in range(1, MOST_TRIES):
            try:
                return verb(*arguments, **options)
            except OperationalError as error:
                if not is_conflict(error):
                    raise
                log.info("transaction_retried", verb=verb.__qualname__, error=str(error).partition("\n")[0])
            # By chance, so that the same two do not meet again.
            time.sleep(random.uniform(0, LONGEST_FIRST_WAIT * 2**failures))  # noqa: S311 (no secret)
        return verb(*arguments, **options)

    return run


def is_conflict(error: BaseException) -> bool:
    """Whether the database ended a transaction only because of another one."""
    return getattr(error.__cause__, "sqlstate", None) in {SERIALIZATION_FAILURE, DEADLOCK_DETECTED}
