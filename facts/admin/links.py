"""Links between the pages of the boundary."""

from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from facts.models import Artifact, Boundary


def boundary(row: Boundary) -> str:
    return reverse("ergon:facts_boundary_change", args=[row.pk])


def artifact(row: Artifact) -> str:
    return reverse("ergon:facts_artifact_change", args=[row.pk])


def buffer(row: Boundary) -> str:
    """The address of the buffer that consumers read."""
    return "forwardedfact" if row.is_remote else "fact"


def fact(buffer: str, boundary_id: int, offset: int) -> str:
    """The page of a fact; `buffer` is fact or forwardedfact."""
    return reverse(f"ergon:facts_{buffer}_change", args=[f"{boundary_id}-{offset}"])


def facts(buffer: str, **filters: Any) -> str:
    """The list of a buffer, filtered."""
    return f"{reverse(f'ergon:facts_{buffer}_changelist')}?{urlencode(filters)}"


def consumers(row: Boundary) -> str:
    return f"{reverse('ergon:facts_consumer_changelist')}?{urlencode({'boundary': row.pk})}"
