"""Facts that refer to artifacts: each must be there, as it was said to be, and from then on it stays."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from facts.core.drafts import Reference
from facts.core.errors import DigestMismatchError, FactError, UnknownArtifactError
from facts.ledger.entries import Entry
from facts.models import Artifact, ArtifactReference

T = TypeVar("T")
Name = tuple[str, str]
Artifacts = Mapping[Name, Artifact]
# A fact may refer to thousands; no database takes as many names in one statement.
AT_ONCE = 500


def find(names: Iterable[Name]) -> Artifacts:
    """Artifacts by bucket and key; those that are not there are left out."""
    keys: dict[str, list[str]] = {}
    for bucket, key in dict.fromkeys(names):
        keys.setdefault(bucket, []).append(key)
    return {
        (one.bucket, one.key): one
        for bucket, all_keys in keys.items()
        for some in _some(all_keys)
        for one in Artifact.objects.filter(bucket=bucket, key__in=some)
    }


def lock(entries: Sequence[Entry]) -> Artifacts:
    """The artifacts that these refer to, kept from being swept until the commit."""
    found = find(reference.name for entry in entries for reference in entry.references)
    # In one order, whoever locks them.
    numbers = sorted(one.pk for one in found.values())
    return {
        (one.bucket, one.key): one
        for some in _some(numbers)
        for one in Artifact.objects.select_for_update().filter(pk__in=some).order_by("pk")
    }


def refusal(entry: Entry, artifacts: Artifacts) -> FactError | None:
    """Why a fact cannot be taken: the first of its references that does not hold."""
    faults = (fault(reference, artifacts.get(reference.name)) for reference in entry.references)
    return next((one for one in faults if one is not None), None)


def fault(reference: Reference, artifact: Artifact | None) -> FactError | None:
    """Why a reference does not hold; None if it does."""
    name = f"{reference.bucket}/{reference.key}"
    if artifact is None:
        msg = f"there is no artifact {name}: upload it first"
        return UnknownArtifactError(msg, f"{reference.at}/key")
    for part in ("digest", "size"):
        if getattr(artifact, part) != getattr(reference, part):
            msg = f"the artifact {name} has another {part}: send that of the upload's answer"
            return DigestMismatchError(msg, f"{reference.at}/{part}")
    if artifact.damage:
        msg = f"the bytes of the artifact {name} are {artifact.damage}: upload it again"
        return UnknownArtifactError(msg, f"{reference.at}/key")
    return None


def keep(boundary_id: int, written: Iterable[tuple[int, Entry]], artifacts: Artifacts) -> None:
    """Write down which facts, by their offsets, refer to which artifacts."""
    made = [
        ArtifactReference(artifact=artifacts[name], boundary_id=boundary_id, offset=offset)
        for offset, entry in written
        for name in dict.fromkeys(reference.name for reference in entry.references)
    ]
    ArtifactReference.objects.bulk_create(made)
    for some in _some(sorted({one.artifact_id for one in made})):
        Artifact.objects.filter(pk__in=some).update(is_referenced=True)


def _some(values: Sequence[T]) -> Iterable[Sequence[T]]:
    return (values[place : place + AT_ONCE] for place in range(0, len(values), AT_ONCE))
