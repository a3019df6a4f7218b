"""The context of a transaction's page."""

from typing import Any

from django.db.models import Q
from django.http import HttpRequest

from engines.admin import parts
from engines.admin.parts import Act
from engines.core import allowed_actions, explanation, redaction
from engines.core.states import State
from engines.models import PolicyVersion, TransactionRecord
from engines.reads import executors, explain
from ergon_site.access.buttons import Button, bar
from ergon_site.access.core.roles import Right

CANCEL = Act("Cancel", "cancel", Right.OPERATE)
REPLAY = Act("Replay", "replay", Right.OPERATE)
EDIT = Act("Edit and replay", "edit", Right.LEAD, is_dialog=False)
REVEAL = Act("Reveal", "reveal", Right.OPERATE, is_dialog=False)


def of(request: HttpRequest, record: TransactionRecord, *, is_revealed: bool = False) -> dict[str, Any]:
    facts = explain.facts_of(record)
    attempts = parts.attempts(explain.attempts_of(record), record.pipeline)
    redacted, family = record.pipeline.redacted, _family(record)
    trace_id = next((one["trace_id"] for one in reversed(attempts) if one["trace_id"]), "")
    return {
        "record": record,
        "sentence": explanation.sentence(facts),
        "facts": facts,
        "attempts": attempts,
        "policy": attempts[-1]["policy_version"] if attempts else _policy(record),
        "trace": {"id": trace_id, "address": parts.trace_link(trace_id)},
        "waited": _between(record.created_at, record.started_at),
        "took": _between(record.started_at, record.finished_at),
        "payload": parts.payload(record.payload, redacted, is_revealed=is_revealed),
        "job": executors.job_of(record.pipeline, redaction.redact(record.payload, redacted)),
        "result": None if record.result is None else parts.json_part(record.result),
        "changes": parts.changes(record.payload_changes, [] if is_revealed else redacted),
        "ancestor": next((one for one in family if one.pk == record.replay_of), None),
        "replays": [one for one in family if one.replay_of == record.pk],
        "bar": bar(*buttons(request, record, facts["dead_letter"])),
        "reveal": REVEAL.button(request, record),
    }


def buttons(request: HttpRequest, record: TransactionRecord, letter: str | None) -> list[Button]:
    state = State(record.state)
    replaying = allowed_actions.of_replaying(state, letter)
    refusal = {REPLAY: replaying, EDIT: replaying, CANCEL: allowed_actions.of_cancelling(state)}
    return [act.button(request, record, why) for act, why in refusal.items()]


def _family(record: TransactionRecord) -> list[TransactionRecord]:
    """The transaction that it replays, and its own replays."""
    relatives = TransactionRecord.objects.filter(Q(pk=record.replay_of or 0) | Q(replay_of=record.pk))
    return list(relatives.only("uid", "state", "replay_of", "created_at").order_by("pk"))


def _policy(record: TransactionRecord) -> str:
    if record.policy_version is None:
        return ""
    return str(PolicyVersion.objects.select_related("policy").filter(pk=record.policy_version).first() or "")


def _between(first: Any, last: Any) -> str:
    return explanation.span((last - first).total_seconds()) if first and last else ""
