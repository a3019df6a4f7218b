"""VERBS of rehearsals: begin, leave, advance, keep, forget. A policy is tried on what was recorded before it counts."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import DatabaseError, connection, transaction
from django.db.models import QuerySet

from engines.core import rehearsal
from engines.core.errors import EngineError, headline
from engines.core.recorded import Terms
from engines.core.rehearsal_report import unrehearsed
from engines.models import Policy, PolicyRehearsal, PolicyVersion
from engines.reads import recorded
from ergon_site.access import audit
from ergon_site.access.core.differences import changes
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.database.clock import database_time

PERIOD = timedelta(days=1)
# Transactions in all, and pipelines among which they are shared.
MOST, MOST_PIPELINES = 3_000, 100
KEPT = timedelta(days=1)
# The same policy is not rehearsed again within this time by the same person.
FRESH = timedelta(minutes=1)
COMPARED = 20
FIRST_WAITING = "SELECT min(id) FROM engines_policyrehearsal WHERE state = 'waiting'"
logger = structlog.get_logger("ergon.rehearsals")


class RehearsalUnknownError(EngineError):
    code = "rehearsal_unknown"

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no rehearsal {number} of this policy")


class RehearsalCancelledError(EngineError):
    """Nobody waits for it any more."""


@retry_conflicts
@transaction.atomic
def begin(policy: Policy, body: Any, *, by: str) -> PolicyRehearsal:
    """Ask for a rehearsal, which maintenance computes; an earlier one that the same person waits for is dropped."""
    complete, now = policy.read(body).to_dict(), database_time()
    mine = policy.rehearsals.filter(by=by)
    fresh = mine.filter(created_at__gt=now - FRESH, state__in=["waiting", "done"], version=None)
    for one in fresh.order_by("-id")[:COMPARED]:
        if one.body == complete:
            # From now on the page that asked last is the one that waits for it.
            mine.filter(pk=one.pk, state="waiting").update(created_at=now)
            one.refresh_from_db(fields=["created_at"])
            return one
    mine.filter(state="waiting").update(state="cancelled", finished_at=now)
    asked = PolicyRehearsal.objects.create(policy=policy, body=complete, by=by, created_at=now)
    changed = changes(policy.content(policy.active).to_dict(), complete) if policy.active else []
    # Not under the policy's name: its last entry there is its last change.
    target, after = f"rehearsal {asked.pk}", {"policy": policy.name, "changes": changed}
    audit.record(actor=by, action="policy.rehearse", target=target, after=after)
    return asked


def leave(asked: PolicyRehearsal, *, by: str, asked_at: datetime) -> int:
    """Cancel a rehearsal whose page was left, unless the same person has asked for it again since."""
    left = _waiting().filter(pk=asked.pk, by=by, created_at=asked_at)
    return left.update(state="cancelled", finished_at=database_time())


def find(policy: Policy, number: int) -> PolicyRehearsal:
    found = policy.rehearsals.filter(pk=number).first()
    if found is None:
        raise RehearsalUnknownError(number)
    return found


def advance() -> int:
    """Compute the rehearsal that has waited longest; how many were computed."""
    # By hand: asked every second, and mostly for nothing.
    with connection.cursor() as cursor:
        cursor.execute(FIRST_WAITING)
        [first] = cursor.fetchone()
    if first is None:
        return 0
    waits = _waiting().filter(pk=first)
    asked = waits.select_related("policy__active").first()
    if asked is None:  # it was cancelled meanwhile
        return 0
    try:
        ended = {"state": "done", "result": rehearse(asked.policy, asked.body, is_wanted=waits.exists)}
    except DatabaseError:  # it waits until the database is back
        raise
    except RehearsalCancelledError:
        return 0
    except Exception as error:
        # One that cannot be computed must not keep the next ones waiting.
        logger.exception("rehearsal failed", rehearsal=asked.pk)
        ended = {"state": "failed", "note": headline(error)}
    # Unless it was cancelled meanwhile, or computed by a process that led before.
    return waits.update(**ended, finished_at=database_time())


def rehearse(policy: Policy, body: Any, *, is_wanted: Callable[[], bool] = lambda: True) -> dict[str, Any]:
    """Play the last day of the policy's pipelines under another content of it: the figures, as JSON.

    Before each pipeline it is asked whether anybody still wants them.
    """
    asked, now = policy.value_class.from_dict(body), database_time()
    terms, since = Terms.of(asked), now - PERIOD
    governed = list(policy.pipelines.values_list("pk", "name")[: MOST_PIPELINES + 1])
    told, parts = [], []
    for pipeline_id, name in governed[:MOST_PIPELINES]:
        if not is_wanted():
            raise RehearsalCancelledError
        found = recorded.sample(pipeline_id, since=since, most=max(1, MOST // len(governed[:MOST_PIPELINES])))
        part = rehearsal.rehearse(found.records, terms)
        oldest = found.oldest and found.oldest.isoformat()
        told.append({"name": name, "is_capped": found.is_capped, "oldest": oldest, "figures": part.to_dict()})
        parts.append(part)
    before = policy.content(policy.active).to_dict() if policy.active else {}
    whole = rehearsal.total(parts)
    return {
        "since": since.isoformat(),
        "until": now.isoformat(),
        "pipelines": told,
        "are_all_pipelines": len(governed) <= MOST_PIPELINES,
        "total": whole.to_dict(),
        "examples": {name: list(uids) for name, uids in whole.examples.items()},
        "unrehearsed": unrehearsed(one["path"] for one in changes(before, asked.to_dict())),
    }


def keep(version: PolicyVersion, body: dict[str, Any]) -> None:
    """Keep what a version was rehearsed with, as long as the version: the newest result for the same content."""
    done = version.policy.rehearsals.filter(state="done", version=None)
    for one in done.order_by("-id")[:COMPARED]:
        if one.body == body:
            PolicyRehearsal.objects.filter(pk=one.pk).update(version=version)
            return


def forget() -> int:
    """Delete rehearsals of policies that nobody saved."""
    old = PolicyRehearsal.objects.filter(version=None, created_at__lt=database_time() - KEPT)
    return old.delete()[0]


def _waiting() -> QuerySet[PolicyRehearsal]:
    return PolicyRehearsal.objects.filter(state="waiting")
