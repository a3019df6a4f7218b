"""Why a transaction is where it is, in one sentence."""

from collections.abc import Mapping
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400


def sentence(facts: Mapping[str, Any]) -> str:
    """The one thing to know, from the facts behind it. Durations are in seconds."""
    match facts["state"]:
        case "pending":
            return _waiting(facts)
        case "running":
            return f"running on {facts['worker'] or 'a worker'} for {span(facts['running_for'])}"
        case "succeeded":
            return f"succeeded {span(facts['ended_ago'])} ago, {_deliveries(facts)}"
        case "cancelled":
            return f"cancelled {span(facts['ended_ago'])} ago before it began"
    return _failed(facts)


def _waiting(facts: Mapping[str, Any]) -> str:
    if facts["paused_by"]:
        why = f" (reason: {facts['pause_reason']})" if facts["pause_reason"] else ""
        return f"waiting: the pipeline was paused by {facts['paused_by']} {span(facts['paused_for'])} ago{why}"
    if facts["due_in"] > 0:
        return f"due in {span(facts['due_in'])}"
    if not facts["workers"]:
        return "waiting: no worker serves this pipeline"
    rescued = f", after {facts['rescues']} rescues from dead workers" if facts["rescues"] else ""
    ahead = facts["ahead"]
    place = "it is next" if ahead == 0 else f"{ahead:,}{'+' if facts['is_ahead_capped'] else ''} are ahead of it"
    return f"waiting: {place}{rescued}"


def _failed(facts: Mapping[str, Any]) -> str:
    error = facts["error"] or {}
    what = f"{error.get('type', 'an error')}: {error.get('message', '')}".rstrip(": .")
    letter = f"; its dead letter is {facts['dead_letter']}" if facts["dead_letter"] else ""
    step = error.get("step", "process")
    return f"failed {span(facts['ended_ago'])} ago in {step} ({error.get('category', 'SYSTEM')}) with {what}{letter}"


def _deliveries(facts: Mapping[str, Any]) -> str:
    count = facts["deliveries"]
    return "at its first delivery" if count == 1 else f"at its delivery number {count}"


def span(seconds: float) -> str:
    """A duration as people say it."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.0f} h"
    return f"{seconds / DAY:.0f} days"


def of_letter(facts: Mapping[str, Any]) -> str:
    """What a dead letter is about, and what was decided."""
    if facts["state"] == "open":
        return f"open for {span(facts['age'])}: a {facts['category']} failure in {facts['step']} waits for a decision"
    why = f" (reason: {facts['reason']})" if facts["reason"] else ""
    return f"{facts['state']} by {facts['settled_by']} {span(facts['settled_ago'])} ago{why}"
