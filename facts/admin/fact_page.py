"""The context of a fact's page."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from ergon_site.access import json_view
from facts.admin import amounts, links
from facts.core import drafts
from facts.ledger import references
from facts.models import Boundary, Fact, Written
from facts.reads import lineage
from facts.reads.lineage import Relative

LATEST = 253_402_300_799_000
MOST_ARTIFACTS = 50


def of(row: Written, boundaries: Sequence[Boundary]) -> dict[str, Any]:
    content = orjson.loads(row.content)
    envelope, fact = content["envelope"], content["fact"]
    family, names = lineage.of(row, [one.pk for one in boundaries]), {one.pk: str(one) for one in boundaries}
    buffer = "fact" if isinstance(row, Fact) else "forwardedfact"
    return {
        "fact": row,
        "is_stored": buffer == "fact",
        "envelope": envelope,
        "labels": sorted(envelope.get("labels", {}).items()),
        "produced_at": _moment(envelope["produced_at_unix_ms"]),
        "stated": {"tree": json_view.tree(fact["object_json"]), "text": json_view.text(fact["object_json"])},
        "canonical": json_view.text(content) if len(row.content) > json_view.LONGEST_DOCUMENT else row.content,
        "size": amounts.size(len(row.content.encode())),
        "artifacts": _artifacts(fact),
        "causes": _told(family.causes, names),
        "has_more_causes": family.has_more_causes,
        "followed": _told(family.followed, names),
        "related": _told(family.related, names),
        "has_more_related": family.has_more_related,
        "most": lineage.MOST,
        "copy": next(iter(_told(family.copies, names)), None),
        "related_address": links.facts(buffer, correlation=row.correlation_id or ""),
        "subject_address": links.facts(buffer, subject=row.subject),
        "boundary_address": links.boundary(row.boundary),
    }


def _told(relatives: Iterable[Relative], names: Mapping[int, str]) -> list[dict[str, Any]]:
    return [
        {
            "one": one,
            "address": links.fact(one.buffer, one.boundary_id, one.offset),
            "boundary": names.get(one.boundary_id, ""),
        }
        for one in relatives
    ]


def _artifacts(fact: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a fact refers to, the first of it: found by name, as no index leads from a fact to it."""
    found = drafts.references_in(fact, is_stored=True)[:MOST_ARTIFACTS]
    rows = references.find(reference.name for reference in found)
    return [
        {
            "name": f"{reference.bucket}/{reference.key}",
            "size": amounts.size(reference.size),
            "row": (row := rows.get(reference.name)),
            "address": links.artifact(row) if row else "",
        }
        for reference in found
    ]


def _moment(milliseconds: float) -> datetime | None:
    """A time as a calendar has it; there are numbers beyond every calendar."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds <= LATEST else None
