"""Explains the state of a transaction in one sentence."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from engines.core.errors import NoPlaceError
from ergon_site.access.core.durations import span


def sentence(facts: Mapping[str, Any]) -> str:
    """The one thing to know, from the facts behind it. Durations are in seconds."""
    match facts["state"]:
        case "pending":
            return _waiting(facts)
        case "running":
            asked = facts["cancel_requested_for"]
            requested = "" if asked is None else f"; its cancellation was requested {span(asked)} ago"
            return (
                f"running on {facts['worker'] or 'a worker'} for {span(facts['running_for'])}{_next(facts)}{requested}"
            )
        case "succeeded":
            note = f"; its result is {facts['result_note']}" if facts["result_note"] else ""
            return f"succeeded {span(facts['ended_ago'])} ago, {_deliveries(facts)}{note}"
        case "cancelled":
            return f"cancelled {span(facts['ended_ago'])} ago {_cancelled_when(facts)}"
    return _failed(facts)


def _cancelled_when(facts: Mapping[str, Any]) -> str:
    if facts["cancel_requested_for"] is not None:
        return "while it ran"
    return f"after {_attempts(spent)}" if (spent := facts["attempts_spent"]) else "before it started"


def _waiting(facts: Mapping[str, Any]) -> str:
    if facts["paused_by"]:
        why = f" (reason: {facts['pause_reason']})" if facts["pause_reason"] else ""
        return f"waiting: the pipeline was paused by {facts['paused_by']} {span(facts['paused_for'])} ago{why}"
    again = _asked_again(facts["error"] or {})
    is_due = facts["due_in"] <= 0
    if is_due and not facts["workers"]:
        return f"waiting: no worker serves this pipeline{again}"
    if facts["hindrances"]:
        due = "" if is_due else f", due in {span(facts['due_in'])}"
        return f"waiting: {_hindrances(facts)}{due}{again}"
    if not is_due:
        return f"due in {span(facts['due_in'])}{again}"
    rescued = f", after {facts['rescues']} rescues from dead workers" if facts["rescues"] else ""
    ahead = facts["ahead"]
    place = "it is next" if ahead == 0 else f"{ahead:,}{'+' if facts['is_ahead_capped'] else ''} are ahead of it"
    return f"waiting: {place}{rescued}{again}"


def pending_word(due_in: float, error: Mapping[str, Any] | None) -> str:
    """The kind of a pending transaction: it waits for a worker, for its time, or for its next attempt."""
    if (error or {}).get("spent"):
        return "parked retry"
    return "scheduled" if due_in > 0 else "waiting"


def pending_reason(facts: Mapping[str, Any]) -> str:
    """Why a pending transaction does not run, in few words; empty if nothing but its turn is missing."""
    error = facts["error"] or {}
    told = []
    if facts["paused_by"]:
        told.append(f"paused by {facts['paused_by']}")
    elif facts["due_in"] <= 0 and not facts["is_served"]:
        told.append("no worker")
    if error.get("spent"):
        of = f" of {error['of']}" if error.get("of") else ""
        told.append(f"attempt {error['spent'] + 1}{of}, after {_what(error)}")
    elif error.get("type") == NoPlaceError.error_type:
        told.append(error["message"])
    return "; ".join(told)


def _asked_again(error: Mapping[str, Any]) -> str:
    """The reason of a postponed attempt, and the number of attempts so far."""
    if error.get("type") == NoPlaceError.error_type:
        return f"; {error['message']}"
    spent = error.get("spent")
    if not spent:
        return ""
    if error.get("is_parked"):
        return f"; attempt {spent + 1} of {error['of']} is next, after {_what(error)}"
    return f"; its handler asked for a retry after {_attempts(spent)} ({_what(error)})"


def _next(facts: Mapping[str, Any]) -> str:
    """The attempt that a running transaction is at, once one has failed, and when it begins if it still waits."""
    attempt = facts["attempt"]
    if attempt is None:
        return ""
    wait = f", next in {span(attempt['next_in'])}" if attempt["next_in"] > 0 else ""
    return f": {attempt['step']} attempt {attempt['number']} of {attempt['of']}{wait}"


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def _failed(facts: Mapping[str, Any]) -> str:
    error = facts["error"] or {}
    # "Open" in the API is "unresolved" in the console, which both show this sentence.
    verb = "needs a decision" if facts["dead_letter"] == "open" else f"is {facts['dead_letter']}"
    letter = f"; its dead letter {verb}" if facts["dead_letter"] else ""
    step, category = error.get("step", "process"), error.get("category", "SYSTEM")
    hindered = f"; a replay would be blocked: {_hindrances(facts)}" if facts["hindrances"] else ""
    return f"failed {span(facts['ended_ago'])} ago in {step} ({category}) with {_what(error)}{letter}{hindered}"


def hindrance(facts: Mapping[str, Any]) -> str:
    """A blocker, and until when in UTC."""
    if facts["until"] is None:
        return f"{facts['what']} until it is reset"
    return f"{facts['what']} until {datetime.fromisoformat(facts['until']).astimezone(UTC):%H:%M:%S} UTC"


def _hindrances(facts: Mapping[str, Any]) -> str:
    return ", ".join(hindrance(one) for one in facts["hindrances"])


def _what(error: Mapping[str, Any]) -> str:
    return f"{error.get('type', 'an error')}: {error.get('message', '')}".rstrip(": .")


def _deliveries(facts: Mapping[str, Any]) -> str:
    count = facts["deliveries"]
    return "on its first delivery" if count == 1 else f"on delivery {count}"


def of_letter(facts: Mapping[str, Any]) -> str:
    """The failure of a dead letter and the decision about it, in one sentence."""
    if facts["state"] == "open":
        return f"unresolved for {span(facts['age'])}: a {facts['category']} failure in {facts['step']} needs a decision"
    why = f" (reason: {facts['reason']})" if facts["reason"] else ""
    return f"{facts['state']} by {facts['settled_by']} {span(facts['settled_ago'])} ago{why}"
