"""The context of a dead letter's page."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from engines import dead_letters
from engines.admin import parts
from engines.admin.parts import Act
from engines.core import allowed_actions, explanation, redaction
from engines.core.states import LetterState
from engines.models import DeadLetter, Pipeline, PolicyVersion, TransactionRecord, Worker
from engines.reads import executors, explain
from ergon_site.access.buttons import Button, bar
from ergon_site.access.core.roles import Right

REPLAY = Act("Replay", "replay", Right.OPERATE)
EDIT = Act("Edit and replay", "edit", Right.LEAD, is_dialog=False)
DISCARD = Act("Discard", "discard", Right.OPERATE)
REVEAL = Act("Reveal", "reveal", Right.OPERATE, is_dialog=False)


def of(request: HttpRequest, letter: DeadLetter, *, is_revealed: bool = False) -> dict[str, Any]:
    record = _record(letter)
    pipeline = record.pipeline if record else Pipeline.objects.filter(name=letter.source).first()
    redacted = pipeline.redacted if pipeline else []
    payload = record.payload if record else letter.payload
    attempts = parts.attempts(explain.attempts_of(record), pipeline) if record else []
    details = (letter.details or {}) | _names(letter, attempts)
    return {
        "letter": letter,
        "record": record,
        "sentence": _sentence(letter),
        "attempts": attempts,
        "payload": parts.payload(payload, redacted, is_revealed=is_revealed),
        "job": executors.job_of(pipeline, redaction.redact(payload, redacted)),
        "traceback_title": parts.details_title(pipeline, letter.error_type, letter.traceback),
        "details": {name.replace("_", " "): value for name, value in details.items() if value is not None},
        "trace": {"id": details.get("trace_id"), "address": parts.trace_link(details.get("trace_id"))},
        "replayed_as": _replay(letter),
        "bar": bar(*buttons(request, letter, can_run=pipeline is not None or dead_letters.is_replayable(letter))),
        "reveal": REVEAL.button(request, letter),
    }


def buttons(request: HttpRequest, letter: DeadLetter, *, can_run: bool) -> list[Button]:
    state = LetterState(letter.state)
    running, settling = (
        allowed_actions.of_settling(state, can_run=can_run),
        allowed_actions.of_settling(state, can_run=True),
    )
    refusal = {REPLAY: running, EDIT: running, DISCARD: settling}
    return [act.button(request, letter, why) for act, why in refusal.items()]


def _record(letter: DeadLetter) -> TransactionRecord | None:
    if letter.transaction_id is None:
        return None
    return TransactionRecord.objects.select_related("pipeline").filter(pk=letter.transaction_id).first()


def _names(letter: DeadLetter, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    """The policy version and the worker by name: of its last attempt, or asked for where none is kept."""
    if attempts:
        return {name: attempts[-1][name] for name in ("policy_version", "worker")}
    version = PolicyVersion.objects.select_related("policy").filter(pk=letter.details.get("policy_version"))
    worker = Worker.objects.filter(pk=letter.details.get("worker"))
    return {"policy_version": version.first(), "worker": worker.first()}


def _replay(letter: DeadLetter) -> TransactionRecord | None:
    if not letter.replayed_as:
        return None
    return TransactionRecord.objects.only("uid", "state").filter(uid=letter.replayed_as).first()


def _sentence(letter: DeadLetter) -> str:
    now = timezone.now()
    return explanation.of_letter(
        {
            "state": letter.state,
            "step": letter.step,
            "category": letter.category,
            "age": (now - letter.created_at).total_seconds(),
            "settled_by": letter.settled_by,
            "settled_ago": (now - letter.settled_at).total_seconds() if letter.settled_at else 0.0,
            "reason": letter.reason,
        }
    )
