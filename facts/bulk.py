"""What bulk operations of the facts act on: artifacts, of which orphans can be removed."""

from collections.abc import Sequence

from ergon_site.access.bulk_kinds import BulkKind
from ergon_site.access.core.durations import span
from ergon_site.access.database.clock import database_time
from facts import artifacts
from facts.conf import settings
from facts.core.errors import FactError
from facts.models import Artifact
from facts.reads import lists


class ArtifactKeptError(FactError):
    """The artifact is referenced, or was uploaded a short time ago."""

    code = "artifact_kept"


def _refusals(_: str, rows: Sequence[Artifact]) -> list[str]:
    now, kept = database_time(), settings().orphan_age
    ages = [(now - row.put_at).total_seconds() for row in rows]
    young = f"It was uploaded a short time ago; orphans can be removed after {span(kept)}."
    return [
        "A fact refers to it." if row.is_referenced else young if age <= kept else ""
        for row, age in zip(rows, ages, strict=True)
    ]


def _sweep(row: Artifact, *, by: str, reason: str) -> str:
    if not artifacts.sweep_orphan(row.pk, by=by, reason=reason):
        msg = f"{row} is in use"
        raise ArtifactKeptError(msg)
    return ""


def _lock(_: str, rows: Sequence[Artifact]) -> list[Artifact]:
    # Not locked here: one that a fact is about to refer to is passed by, not waited for.
    return list(Artifact.objects.filter(pk__in=[row.pk for row in rows]).order_by("pk"))


ARTIFACTS = BulkKind(
    name="artifact",
    rows=Artifact.objects.all,
    find=lists.artifacts,
    words=frozenset({"kept", "bucket", "q"}),
    key="pk",
    verbs={"sweep": _sweep},
    refusals=_refusals,
    lock=_lock,
    skipped_by=(ArtifactKeptError,),
    refused_by=(FactError,),
    scope="platform",
)
