"""VERB: record. Every action of a person or a machine leaves one entry, in the transaction of the action itself."""

from typing import Any

from ergon_site.access.models import LONGEST_TARGET, AuditEntry


def record(
    *,
    actor: str,
    action: str,
    target: str,
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AuditEntry:
    """Write down what is being done. A target is cut where its column ends: two zones may have long names."""
    return AuditEntry.objects.create(
        actor=actor, action=action, target=target[:LONGEST_TARGET], reason=reason, before=before, after=after
    )
