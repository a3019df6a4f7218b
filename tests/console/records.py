"""Scenes for the pages: transactions that were run, failed and were given up, by the verbs themselves."""

import json
import time
from collections.abc import Sequence
from typing import Any

from django.test import Client

from engines import transactions, workers
from engines.core.attempt import AttemptRecord
from engines.core.errors import ExceptionType, TransactionException, wrap
from engines.core.outcome import Failure, Outcome, Success
from engines.core.steps import Stage
from engines.models import DeadLetter, Pipeline, TransactionRecord, Worker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def make_worker(*names: str) -> Worker:
    """One that counts as alive, however long a test takes."""
    made = workers.enrol(list(names))
    made.lease = 3600.0
    made.save(update_fields=["lease"])
    return made


def failure(message: str = "the bank said no", category: ExceptionType = ExceptionType.SYSTEM) -> Failure:
    """One with a cause and a traceback, as a task's own error has."""
    try:
        raise ConnectionError(message)  # noqa: TRY301
    except ConnectionError as error:
        return Failure(wrap(TransactionException(message, category), error))


def tries(
    *outcomes: Outcome, stage: Stage = Stage.PROCESS, took: float = 0.4, apart: float = 1.0
) -> list[AttemptRecord]:
    """Attempts of one step, the last of which has just ended."""
    begun = time.monotonic() - len(outcomes) * (took + apart)
    return [
        AttemptRecord(stage, place + 1, len(outcomes), begun + place * (took + apart), took, outcome)
        for place, outcome in enumerate(outcomes)
    ]


def run(
    pipeline: Pipeline, outcome: Outcome, attempts: Sequence[AttemptRecord] = (), worker: Worker | None = None
) -> str:
    """Claim the next transaction of a pipeline and settle it; its id."""
    owner = worker.pk if worker else 1
    (leased,) = transactions.claim(pipeline.pk, 1, owner)
    leased.lease.attempts += [(one, TRACE) for one in attempts or tries(outcome)]
    transactions.settle([transactions.Settlement(leased, outcome)], worker=owner)
    return leased.id


def succeed(pipeline: Pipeline, payload: Any, result: Any = None, **fields: Any) -> TransactionRecord:
    transactions.submit(pipeline.name, payload, **fields)
    return transactions.find(run(pipeline, Success(result)))


def fail(pipeline: Pipeline, payload: Any, *outcomes: Failure, **fields: Any) -> DeadLetter:
    """A transaction that failed for good, and its dead letter."""
    transactions.submit(pipeline.name, payload, **fields)
    ends = outcomes or (failure(),)
    uid = run(pipeline, ends[-1], tries(*ends))
    return DeadLetter.objects.get(uid=uid)


def read(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def exported(client: Client, address: str) -> list[dict[str, Any]]:
    """The rows of a list, by its export."""
    rows: list[dict[str, Any]] = json.loads(b"".join(client.get(address)))
    return rows
