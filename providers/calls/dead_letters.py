"""A terminal failure of a task: published to whoever listens, and shown in the list of all dead letters."""

from typing import Any

from engines import dead_letters
from engines.core import failures
from engines.core.errors import ExceptionType
from engines.dead_letters import DeadLetterDraft
from ergon_site.access.database.clock import database_time
from providers.core.errors import ProviderError
from providers.core.exchange import CallRequest
from providers.core.request import storable
from providers.models import OutboxLetter

STEP = 20
CATEGORIES = {"timeout": ExceptionType.TIMEOUT, "bad_request": ExceptionType.BUSINESS}


def record_dead_letter(ticket: CallRequest, error: ProviderError, attempts: int) -> OutboxLetter:
    """Keep a dead letter, in the database transaction of the end that it tells of."""
    context = ticket.context
    named = {**ticket.who._asdict(), "campaign_id": ticket.campaign_id, "operation": ticket.operation}
    # What is published: the thirteen fields of the documents.
    message: dict[str, Any] = storable(
        {
            **named,
            "task_name": context.task_name,
            "idempotency_key": ticket.key,
            "correlation_id": context.correlation_id,
            "reason_code": error.reason_code,
            "error_type": type(error).__name__,
            "error_message": error.message,
            "attempts": attempts,
            "occurred_at": database_time().isoformat(),
        }
    )
    # What a replay asks again.
    keys = {"idempotency_key": context.idempotency_key, "task_arguments": context.task_arguments}
    request: dict[str, Any] = storable({**named, "version": ticket.version, **keys, "payload": ticket.payload})
    without_payload = {name: value for name, value in request.items() if name != "payload"}
    draft = DeadLetterDraft(
        source=f"{ticket.who.provider_name}/{ticket.who.capability}"[:200],
        uid=context.correlation_id,
        step=ticket.operation[:STEP],
        category=CATEGORIES.get(error.reason_code, ExceptionType.SYSTEM).value,
        error_type=message["error_type"],
        message=message["error_message"],
        traceback=failures.traceback_of(error),
        payload=request["payload"],
        details={**message, "request": without_payload},
    )
    [letter] = dead_letters.record([draft])
    return OutboxLetter.objects.create(payload=message, request=request, dead_letter_id=letter.pk)
