"""Logs transactions that have failed for good, one line for each."""

from collections.abc import Iterable
from typing import Any

import structlog

from engines.core import failures
from engines.core.attempt import AttemptRecord
from engines.core.outcome import Failure

# A log line is for finding the transaction: its dead letter has the whole text and the traceback.
LONGEST_ERROR = 500

log = structlog.get_logger("ergon.worker")


def log_failure(pipeline: str, transaction_id: str, failure: Failure, attempts: Iterable[AttemptRecord]) -> None:
    tried = list(attempts)
    told: dict[str, Any] = failures.summary(failure, tried)
    error = " ".join(f"{told['type']}: {told['message']}".split())
    log.error(
        "transaction_failed",
        pipeline=pipeline,
        transaction=failures.storable(transaction_id),
        step=told["step"],
        category=told["category"],
        attempts=sum(one.stage.value == told["step"] for one in tried),
        error=error if len(error) <= LONGEST_ERROR else f"{error[:LONGEST_ERROR]}…",
    )
