"""VERB: reveal. Whoever looks at hidden fields of a payload is written down."""

from typing import Any

from django.db import transaction

from engines.transactions.finding import find
from ergon_site.access import audit
from ergon_site.access.database.retrying import retry_conflicts


@retry_conflicts
@transaction.atomic
def reveal(uid: str, *, by: str, reason: str = "") -> Any:
    """The whole payload of a transaction, hidden fields included."""
    record = find(uid)
    audit.record(
        actor=by,
        action="transaction.reveal",
        target=f"transaction {uid}",
        reason=reason,
        after={"fields": record.pipeline.redacted},
    )
    return record.payload
