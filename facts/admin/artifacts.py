"""Artifacts: what is stored under which key, which facts refer to it, and what nobody refers to."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import HttpRequest

from ergon_site.access import keyset
from ergon_site.access.console import states
from ergon_site.access.console.cells import column, size, tag, unbroken, words
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.lists import KeysetPage, choice, typed
from ergon_site.access.console.pages import registered
from ergon_site.access.console.selection import EXPORT, BulkAct
from ergon_site.access.core.durations import span
from ergon_site.access.keyset import KeysetQuery
from facts.admin import links
from facts.admin.facts import all_boundaries
from facts.conf import settings
from facts.models import Artifact
from facts.reads import lists

SHOWN = 50

BULK = (
    BulkAct(
        title="Remove",
        verb="sweep",
        past="removed",
        meaning="Old orphans are deleted for good; what facts refer to stays.",
    ),
    EXPORT,
)


@registered(Artifact)
class ArtifactsPage(KeysetPage, DetailPage):
    detail_template = "console/artifact.html"
    bulk_kind, bulk_acts = "artifact", BULK
    empty_text = "PUT /api/v1/objects/{bucket}/{key} uploads one."
    list_display = ("name", "kept", "bytes_held", "kind", "made", "who")
    list_filter: ClassVar = [
        choice("kept", states.choices("artifact", "orphan", "referenced", "damaged"), "references"),
        typed("bucket"),
    ]
    search_help_text = "A name: bucket/key"
    longest_value = longest_search = 1100
    export_fields = ("bucket", "key", "digest", "size", "media_type", "is_referenced", "created_at", "created_by")

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return lists.artifacts(wanted)

    name = column("name", lambda row: words(str(row)))
    kept = column(
        "references", lambda row: tag(row.damage or ("referenced" if row.is_referenced else "orphan"), "artifact")
    )
    bytes_held = column("size", lambda row: unbroken(size(row.size)))
    kind = column("media type", lambda row: words(row.media_type))
    made = column("created", lambda row: row.created_at)
    who = column("by", lambda row: words(row.created_by))

    def details(self, request: HttpRequest, row: Artifact) -> dict[str, Any]:
        found = keyset.paginate(lists.references(row), size=SHOWN, at=request.GET.get("at", ""))
        names = {one.pk: one for one in all_boundaries(request)}
        references = [
            {
                "boundary": boundary,
                "offset": one.offset,
                "address": links.fact(links.buffer(boundary), boundary.pk, one.offset),
            }
            for one in found.rows
            if (boundary := names.get(one.boundary_id)) is not None
        ]
        return {
            "artifact": row,
            "kept": self.kept(row),
            "size": size(row.size),
            "exact": f"{row.size:,}",
            "references": references,
            "slice": found,
            "orphan_age": span(settings().orphan_age),
        }
