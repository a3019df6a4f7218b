"""How an attempt ended as one text, so that a file can keep it; and back."""

import json
from typing import Any

from providers.core.breaker import Permit, Verdict
from providers.core.errors import BY_REASON, ProviderError
from providers.core.exchange import CallRequest, Outcome, ProviderExecutionContext, Who
from providers.core.gate import Admission, Decision, Reservation
from providers.core.policy import ProviderPolicy
from providers.core.request import storable
from providers.core.steps import Settle


def dumped(request: CallRequest, settlement: Settle) -> str:
    """The text of an outcome. What JSON does not know is kept as text, as in the database."""
    context, admission, error = request.context, settlement.admission, settlement.error
    entry = {
        "who": request.who,
        "operation": request.operation,
        "key": request.key,
        "fingerprint": request.fingerprint,
        "policy": request.policy.to_stored(),
        "context": {
            "correlation_id": context.correlation_id,
            "idempotency_key": context.idempotency_key,
            "task_execution_id": context.task_execution_id,
            "task_name": context.task_name,
            "task_arguments": context.task_arguments,
        },
        "account": request.account,
        "campaign_id": request.campaign_id,
        "payload": request.payload,
        "version": request.version,
        "policy_version": request.policy_version,
        "call_id": request.call_id,
        "asked_at": request.asked_at,
        "token": request.token,
        "settlement": {
            **settlement._asdict(),
            "admission": _parts_of(admission),
            "error": None if error is None else _fields_of(error),
        },
    }
    return json.dumps(storable(entry))


def loaded(text: str) -> tuple[CallRequest, Settle]:
    """The outcome that a text keeps, to be settled as one that may have been settled before."""
    entry: dict[str, Any] = json.loads(text)
    entry |= {
        "who": Who(*entry["who"]),
        "policy": ProviderPolicy.from_stored(entry["policy"]),
        "context": ProviderExecutionContext(**entry["context"]),
    }
    kept = entry.pop("settlement")
    error = kept["error"]
    kept |= {
        "admission": _admission_of(kept["admission"]),
        "verdict": Verdict(kept["verdict"]),
        "outcome": Outcome(kept["outcome"]),
        "error": None if error is None else BY_REASON[error.pop("reason_code")](**error),
        "refund": _reservation_of(*kept["refund"]),
        "is_repeat": True,
    }
    return CallRequest(**entry), Settle(**kept)


def _parts_of(admission: Admission) -> dict[str, Any]:
    account = admission.account
    parts = {**admission._asdict(), "permit": admission.permit, "account": account and _parts_of(account)}
    if admission.place is None:
        del parts["place"]  # so that an older release, which knows of none, can read it
    return parts


def _admission_of(parts: dict[str, Any]) -> Admission:
    account = parts.get("account")
    read = {
        "decision": Decision(parts["decision"]),
        "permit": Permit(*parts["permit"]),
        "account": account and _admission_of(account),
    }
    return Admission(**parts | read)


def _reservation_of(amount: int, window_start: float | None, account: Any = None) -> Reservation:
    return Reservation(amount, window_start, account and _reservation_of(*account))


def _fields_of(error: ProviderError) -> dict[str, Any]:
    return {
        "reason_code": error.reason_code,
        "message": error.message,
        "http_status": error.http_status,
        "retry_after": error.retry_after,
        "never_left": error.never_left,
    }
