"""Lists of facts and artifacts: each is led by an index, so that the millionth page costs what the first one does."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from django.db.models import Q

from ergon_site.access.core.texts import is_key
from ergon_site.access.keyset import KeysetQuery, ListingError
from facts.models import Artifact, ArtifactReference, Boundary, Fact, ForwardedFact

Buffer: TypeAlias = type[Fact] | type[ForwardedFact]

# What a search may mean, in the order in which it is tried.
MEANINGS = {"message": "a message id", "subject": "a subject", "correlation": "a correlation id"}
LEADING = ("message", "correlation", "subject", "boundary")
WINDOW = 10_000
BY_BOUNDARY = "grouped by boundary, newest first"


def facts(buffer: Buffer, asked: Mapping[str, str], boundaries: Sequence[Boundary]) -> KeysetQuery:
    """The keyset query of facts: the narrowest index leads, and the other filters apply to its rows."""
    keys, note = [one.pk for one in boundaries], ""
    conditions = {name: _condition(name, asked[name], keys) for name in MEANINGS if name in asked}
    if (chosen := asked.get("boundary")) is not None:
        if not is_key(chosen) or int(chosen) not in keys:
            msg = f"there is no boundary {chosen!r}"
            raise ListingError(msg)
        conditions["boundary"] = Q(boundary_id=int(chosen))
    if text := asked.get("q", "").strip():
        meant, note = _meaning(buffer, text, keys)
        conditions[meant] = conditions.get(meant, Q()) & _condition(meant, text, keys)
    rows = buffer.objects.defer("content")
    # In one boundary an offset is a place of its own: nothing else is needed to tell where a page ends.
    order: tuple[str, ...] = ("-offset",) if "boundary" in conditions else ("-offset", "-boundary_id")
    lead = next((conditions.pop(name) for name in LEADING if name in conditions), None)
    if lead is None:
        lead, order, note = Q(), ("-boundary_id", "-offset"), BY_BOUNDARY
    rest = Q(*conditions.values())
    return KeysetQuery(rows=rows.filter(lead), order=order, rest=rest, window=WINDOW, is_counted=False, note=note)


def find(buffer: Buffer, text: str, boundaries: Sequence[int], most: int) -> list[Fact] | list[ForwardedFact]:
    """The facts of this message id, and those at this offset, in all boundaries."""
    meant = Q(message_id=text)
    if is_key(text):
        meant |= Q(offset=int(text))
    # The boundaries are named because both indexes begin with them.
    rows: Any = buffer.objects.defer("content").filter(meant, boundary_id__in=boundaries)
    return list(rows.order_by("boundary_id", "offset")[:most])


def artifacts(asked: Mapping[str, str]) -> KeysetQuery:
    """The keyset query of artifacts: all, those of a bucket by their keys, one by its name, or orphans by age."""
    text, bucket, rest = asked.get("q", "").strip(), asked.get("bucket"), Q()
    rows = Artifact.objects.all()
    if asked.get("kept", "orphan") not in {"orphan", "referenced", "damaged"}:
        msg = "artifacts are orphans, referenced or damaged"
        raise ListingError(msg)
    is_orphans = asked.get("kept") == "orphan"
    if asked.get("kept") == "damaged":
        rows = rows.exclude(damage="")
    elif "kept" in asked:
        rest = Q(is_referenced=not is_orphans)
    if text:
        named, _, key = (bucket, "", text) if bucket else text.partition("/")
        return KeysetQuery(rows=rows.filter(bucket=named, key=key), rest=rest, is_counted=False)
    if is_orphans:
        order, rest = ("-created_at", "-id"), Q(bucket=bucket) if bucket else Q()
        return KeysetQuery(rows=rows.filter(is_referenced=False), order=order, rest=rest)
    if bucket:
        return KeysetQuery(rows=rows.filter(bucket=bucket), order=("key",), rest=rest, is_counted=False)
    return KeysetQuery(rows=rows, rest=rest, is_counted=False)


def references(artifact: Artifact) -> KeysetQuery:
    """The facts that refer to an artifact."""
    rows = ArtifactReference.objects.filter(artifact=artifact)
    return KeysetQuery(rows=rows, order=("-boundary_id", "-offset"), is_counted=False)


def _condition(meaning: str, text: str, boundaries: Sequence[int]) -> Q:
    if meaning == "message":
        # The boundaries are named because the index that knows message ids begins with them.
        return Q(boundary_id__in=boundaries, message_id=text)
    return Q(subject=text) if meaning == "subject" else Q(correlation_id=text)


def _meaning(buffer: Buffer, text: str, keys: Sequence[int]) -> tuple[str, str]:
    """The meaning of a searched text, and a note on its other meanings."""
    meant = [name for name in MEANINGS if buffer.objects.filter(_condition(name, text, keys)).exists()]
    if not meant:
        return "message", f"no fact has this {', '.join(one.removeprefix('a ') for one in MEANINGS.values())}"
    others = " and ".join(MEANINGS[name] for name in meant[1:])
    return meant[0], f"found as {MEANINGS[meant[0]]}{f'; it is also {others}: use the filters' if others else ''}"
