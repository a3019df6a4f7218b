"""VERB: claim. A request that has a key is made by one caller at a time, and its success is given again."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from ergon_site.access.database.retrying import retry_conflicts
from providers.core.exchange import CallRequest
from providers.core.request import storable, text_of
from providers.core.steps import Busy, Claimed, Replay, Taken
from providers.database import admitting, sql, statements
from providers.models.calls import ClaimState


@retry_conflicts
def claim(ticket: CallRequest, *, lease: float) -> Claimed | Replay | Busy | Taken:
    """Take the key of a request; or what stands in the way. Settling the request lets go of it."""
    token = secrets.token_hex(16)
    given = {
        **admitting.named(ticket.who),
        "key": ticket.key,
        "operation": ticket.operation,
        "fingerprint": ticket.fingerprint,
        "token": token,
        "lease": lease,
    }
    [(holder, fingerprint, state, answer, left)] = sql.rows(statements.claim(sql.dialect()), given)
    if holder == token:
        return Claimed(token)
    if fingerprint != ticket.fingerprint:
        return Taken()
    if state == ClaimState.SUCCEEDED.value:
        return Replay(json.loads(answer))
    return Busy(max(0.0, left))


def kept(payload: Mapping[str, Any] | None) -> str:
    """An answer as it is kept: what JSON does not know is kept as text."""
    try:
        return json.dumps(payload, default=text_of)
    except Exception:  # noqa: BLE001 (names that are none, rings, values that cannot be asked: a success is kept anyway)
        return json.dumps(storable(payload))
