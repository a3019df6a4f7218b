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
    payload = letter_message(ticket, error, attempts)
    request = request_of(ticket)
    # The fields are the documents'; what is needed to ask again stands beside them.
    draft = DeadLetterDraft(
        source=source_of(ticket.who.provider_name, ticket.who.capability),
        uid=ticket.context.correlation_id,
        step=ticket.operation[:STEP],
        category=CATEGORIES.get(error.reason_code, ExceptionType.SYSTEM).value,
        error_type=payload["error_type"],
        message=payload["error_message"],
        traceback=failures.traceback_of(error),
        payload=request["payload"],
        details={**payload, "request": {name: value for name, value in request.items() if name != "payload"}},
    )
    [letter] = dead_letters.record([draft])
    return OutboxLetter.objects.create(payload=payload, request=request, dead_letter_id=letter.pk)


def source_of(provider_name: str, capability: str) -> str:
    """The source of a capability's dead letters."""
    return f"{provider_name}/{capability}"[:200]


def letter_message(ticket: CallRequest, error: ProviderError, attempts: int) -> dict[str, Any]:
    """The published message: the thirteen fields of the documents."""
    fields = {
        "tenant_id": ticket.who.tenant_id,
        "campaign_id": ticket.campaign_id,
        "task_name": ticket.context.task_name,
        "provider_name": ticket.who.provider_name,
        "capability": ticket.who.capability,
        "operation": ticket.operation,
        "idempotency_key": ticket.key,
        "correlation_id": ticket.context.correlation_id,
        "reason_code": error.reason_code,
        "error_type": type(error).__name__,
        "error_message": error.message,
        "attempts": attempts,
        "occurred_at": database_time().isoformat(),
    }
    plain: dict[str, Any] = storable(fields)
    return plain


def request_of(ticket: CallRequest) -> dict[str, Any]:
    """The request of a dead letter, for its replay."""
    asked = {
        **ticket.who._asdict(),
        "campaign_id": ticket.campaign_id,
        "operation": ticket.operation,
        "version": ticket.version,
        "idempotency_key": ticket.context.idempotency_key,
        "task_arguments": ticket.context.task_arguments,
        "payload": ticket.payload,
    }
    plain: dict[str, Any] = storable(asked)
    return plain
