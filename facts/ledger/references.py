"""Facts that are about artifacts: the artifact must be there, as it was said to be, and from then on it stays."""

from collections.abc import Mapping, Sequence

from django.db.models import Q

from facts.core.errors import UnknownArtifactError
from facts.ledger.entries import Entry
from facts.models import Artifact, ArtifactReference, Fact

Artifacts = Mapping[tuple[str, str], Artifact]


def lock(entries: Sequence[Entry]) -> Artifacts:
    """The artifacts that these refer to, kept from being swept until the commit."""
    wanted = {(entry.reference.bucket, entry.reference.key) for entry in entries if entry.reference}
    if not wanted:
        return {}
    any_of = Q()
    for bucket, key in wanted:
        any_of |= Q(bucket=bucket, key=key)
    found = Artifact.objects.select_for_update().filter(any_of).order_by("pk")
    return {(artifact.bucket, artifact.key): artifact for artifact in found}


def refusal(entry: Entry, artifacts: Artifacts) -> UnknownArtifactError | None:
    reference = entry.reference
    if reference is None:
        return None
    artifact = artifacts.get((reference.bucket, reference.key))
    if artifact is None:
        msg = f"there is no artifact {reference.bucket}/{reference.key}: upload it first"
        return UnknownArtifactError(msg, "/fact/object_json/key")
    for name in ("digest", "size"):
        if getattr(artifact, name) != getattr(reference, name):
            # Not what it is: who appends may have no right to the bucket.
            msg = (
                f"the artifact {reference.bucket}/{reference.key} has another {name}: send that of the upload's answer"
            )
            return UnknownArtifactError(msg, f"/fact/object_json/{name}")
    return None


def keep(new: Sequence[Fact], entries: Mapping[str, Entry], artifacts: Artifacts) -> None:
    """Write down which fact refers to which artifact."""
    made = []
    for fact in new:
        reference = entries[fact.message_id].reference
        if reference is not None:
            artifact = artifacts[reference.bucket, reference.key]
            made.append(ArtifactReference(artifact=artifact, boundary_id=fact.boundary_id, offset=fact.offset))
    if made:
        ArtifactReference.objects.bulk_create(made)
        Artifact.objects.filter(pk__in={one.artifact_id for one in made}).update(is_referenced=True)
