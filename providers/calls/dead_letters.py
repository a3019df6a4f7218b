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
    message, request = _message(ticket, error, attempts), _request(ticket)
    without_payload = {name: value for name, value in request.items() if name != "payload"}
    draft = DeadLetterDraft(
        source=f"{ticket.who.provider_name}/{ticket.who.capability}"[:200],
        uid=ticket.context.correlation_id,
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


def _message(ticket: CallRequest, error: ProviderError, attempts: int) -> dict[str, Any]:
    """The published message: the thirteen fields of the documents."""
    message: dict[str, Any] = {
        **ticket.who._asdict(),
        "campaign_id": ticket.campaign_id,
        "task_name": ticket.context.task_name,
        "operation": ticket.operation,
        "idempotency_key": ticket.key,
        "correlation_id": ticket.context.correlation_id,
        "reason_code": error.reason_code,
        "error_type": type(error).__name__,
        "error_message": error.message,
        "attempts": attempts,
        "occurred_at": database_time().isoformat(),
    }
    return storable(message)  # type: ignore[no-any-return]


def _request(ticket: CallRequest) -> dict[str, Any]:
    """The request, for a replay."""
    request: dict[str, Any] = {
        **ticket.who._asdict(),
        "campaign_id": ticket.campaign_id,
        "operation": ticket.operation,
        "version": ticket.version,
        "idempotency_key": ticket.context.idempotency_key,
        "task_arguments": ticket.context.task_arguments,
        "payload": ticket.payload,
    }
    return storable(request)  # type: ignore[no-any-return]
