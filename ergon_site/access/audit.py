"""VERB: record. Every action of a person or a machine leaves one entry, in the transaction of the action itself."""

from typing import Any

from ergon_site.access.models import AuditEntry


def record(
    *,
    actor: str,
    action: str,
    target: str,
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AuditEntry:
    """Write down what is being done."""
    return AuditEntry.objects.create(
        actor=actor, action=action, target=target, reason=reason, before=before, after=after
    )
