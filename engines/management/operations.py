"""Bulk operations on the command line: as JSON, in words, and followed until they end."""

import time
from contextlib import closing
from typing import Any

from django.core.management.base import CommandError

from engines.dead_letters import bulk, bulk_replays
from engines.management.base import EngineCommand
from engines.models import BulkOperation
from ergon_site.access.cli.program import typed
from ergon_site.access.cli.progress import ProgressBar

LOOK_EVERY = 0.5


def as_json(operation: Any) -> dict[str, Any]:
    """An operation that comes with the figures of its replays."""
    names = ("verb", "kind", "state", "note", "by", "reason", "filter", "dry_run", "expected", "cap", "canary", "rate")
    more = ("done", "skipped", "failed", "created_at", "finished_at")
    kept = {name: getattr(operation, name) for name in (*names, *more)}
    replays = operation.replays.as_dict() if operation.replays is not None else None
    return {"id": operation.pk, "group": operation.group_id, **kept, "replays": replays}


def one_as_json(operation: BulkOperation) -> dict[str, Any]:
    return as_json(bulk_replays.with_figures([operation])[0])


def tell_begun(command: EngineCommand, begun: BulkOperation, *, wait: bool) -> None:
    """Say that an operation has begun, or wait for its end."""
    if wait:
        tell_end(command, begun.pk)
        return
    line = f"started the bulk operation {begun.pk}: {begun.verb} of {begun.expected:,}; {typed('maintain')} runs it"
    command.tell(one_as_json(bulk.find(begun.pk)), line)


def tell_end(command: EngineCommand, number: int) -> None:
    """Follow an operation until it no longer runs; one that stopped before its end is an error."""
    operation, seen = bulk.find(number), 0
    with closing(ProgressBar(command.stderr, "settled", total=min(operation.expected, operation.cap))) as progress:
        while operation.state == "running":
            time.sleep(LOOK_EVERY)
            operation = bulk.find(number)
            progress.advance(operation.processed - seen)
            seen = operation.processed
    told: Any = bulk_replays.with_figures([operation])[0]
    line = f"the bulk operation {operation.pk} is {operation.state}: {bulk_replays.tally(operation, told.replays)}"
    command.tell(as_json(told), line)
    if operation.state != "done":
        raise CommandError(operation.note or f"the bulk operation {operation.pk} is {operation.state}")
