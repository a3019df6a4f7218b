"""Facts in the store buffer and in the forward buffer: found by what they are called, read, and never changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import orjson
from django.http import HttpRequest

from ergon_site.access.console import json_view, timeline as timelines
from ergon_site.access.console.cells import column, size, two_lines, words
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.lists import KeysetPage, choice_of, typed
from ergon_site.access.console.pages import registered
from ergon_site.access.console.palette import MOST, Found
from ergon_site.access.core.texts import is_key
from ergon_site.access.keyset import KeysetQuery
from facts.admin import links
from facts.core import drafts
from facts.ledger import references
from facts.models import Boundary, Fact, ForwardedFact, Written
from facts.reads import lineage, lists
from facts.reads.lineage import Relative


def all_boundaries(request: Any) -> list[Boundary]:
    """All boundaries, queried once in a request."""
    if not hasattr(request, "all_boundaries"):
        request.all_boundaries = list(Boundary.objects.select_related("from_zone", "to_zone"))
    found: list[Boundary] = request.all_boundaries
    return found


LATEST = 253_402_300_799_000
MOST_ARTIFACTS = 50


def _relatives(relatives: Iterable[Relative], names: Mapping[int, str]) -> list[dict[str, Any]]:
    return [
        {
            "one": one,
            "address": links.fact(one.buffer, one.boundary_id, one.offset),
            "boundary": names.get(one.boundary_id, ""),
        }
        for one in relatives
    ]


def _artifacts(fact: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first artifacts that a fact refers to: found by name, as no index leads from a fact to them."""
    found = drafts.references_in(fact, is_stored=True)[:MOST_ARTIFACTS]
    rows = references.find(reference.name for reference in found)
    return [
        {
            "name": f"{reference.bucket}/{reference.key}",
            "size": size(reference.size),
            "row": (row := rows.get(reference.name)),
            "address": links.artifact(row) if row else "",
        }
        for reference in found
    ]


def _ids(row: Written) -> set[str]:
    """The ids under which engines may know of a fact: a handler that reads it has the message id as its own."""
    known = (row.message_id, row.correlation_id, row.causation_id, getattr(row, "transaction_id", None))
    return {one for one in known if one}


class WrittenPage(KeysetPage, DetailPage):
    """A buffer, listed without contents. A row is addressed by its boundary and its offset."""

    detail_template = "console/fact.html"
    longest_value = longest_search = 2000
    list_display: ClassVar = ("key", "about", "where", "correlated", "written")
    list_filter: ClassVar = [
        choice_of("boundary", lambda request: [(str(one.pk), str(one)) for one in all_boundaries(request)]),
        *(typed("message", "message id"), typed("subject"), typed("correlation", "correlation id")),
    ]
    search_help_text = "A message id, subject or correlation id"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = {
        "from_zone": "boundary__from_zone__name",
        "to_zone": "boundary__to_zone__name",
        **{name: name for name in ("offset", "message_id", "subject", "predicate", "correlation_id", "causation_id")},
        **{name: name for name in ("digest", "written_at")},
    }

    key = column("message id", lambda fact: words(fact.message_id))
    about = column("subject and predicate", lambda fact: two_lines(fact.subject, fact.predicate))
    where = column("boundary and offset", lambda fact: two_lines(fact.boundary, f"{fact.offset:,}"))
    correlated = column("correlation id", lambda fact: words(fact.correlation_id) if fact.correlation_id else "–")
    written = column("written", lambda fact: fact.written_at)

    def key_of(self, row: Written) -> str:
        return f"{row.boundary_id}-{row.offset}"

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        boundary, _, offset = object_id.partition("-")
        numbers = [int(part) if is_key(part) else -1 for part in (boundary, offset)]
        rows: Any = self.model._default_manager.select_related("boundary__from_zone", "boundary__to_zone")  # noqa: SLF001
        row = rows.filter(boundary_id=numbers[0], offset=numbers[1]).first()
        if row is not None:
            # The theme's breadcrumb would take the key of two columns for an address.
            row.page_address = self.address(self.key_of(row))
        return row

    def find(self, request: HttpRequest, text: str) -> Iterator[Found]:
        names = {one.pk: str(one) for one in all_boundaries(request)}
        for row in lists.find(self.model, text, list(names), MOST):
            yield Found(
                row.message_id, f"{names[row.boundary_id]}, offset {row.offset:,}", self.address(self.key_of(row))
            )

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return lists.facts(self.model, wanted, all_boundaries(request))

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        known = {boundary.pk: boundary for boundary in all_boundaries(request)}
        for row in rows:
            row.boundary = known.get(row.boundary_id) or row.boundary
        return rows

    def details(self, request: HttpRequest, row: Written) -> dict[str, Any]:
        names = {one.pk: str(one) for one in all_boundaries(request)}
        content = orjson.loads(row.content)
        envelope, fact = content["envelope"], content["fact"]
        family = lineage.lineage_of(row, list(names))
        produced = envelope["produced_at_unix_ms"]
        buffer = "fact" if isinstance(row, Fact) else "forwardedfact"
        return {
            "fact": row,
            "is_stored": buffer == "fact",
            "envelope": envelope,
            "labels": sorted(envelope.get("labels", {}).items()),
            # There are numbers beyond every calendar.
            "produced_at": datetime.fromtimestamp(produced / 1000, UTC) if produced <= LATEST else None,
            "stated": {"tree": json_view.tree(fact["object_json"]), "text": json_view.text(fact["object_json"])},
            "canonical": json_view.text(content) if len(row.content) > json_view.LONGEST_DOCUMENT else row.content,
            "size": size(len(row.content.encode())),
            "artifacts": _artifacts(fact),
            "causes": _relatives(family.causes, names),
            "has_more_causes": family.has_more_causes,
            "followed": _relatives(family.followed, names),
            "related": _relatives(family.related, names),
            "has_more_related": family.has_more_related,
            "most": lineage.MOST,
            "timeline": timelines.timeline(request, *timelines.sources(_ids(row), but="providers")),
            "copy": next(iter(_relatives(family.copies, names)), None),
            "related_address": links.facts(buffer, correlation=row.correlation_id or ""),
            "subject_address": links.facts(buffer, subject=row.subject),
            "boundary_address": links.boundary(row.boundary),
        }


@registered(Fact)
class FactsPage(WrittenPage):
    empty_text = "POST /api/v1/facts appends one."


@registered(ForwardedFact)
class ForwardedFactsPage(WrittenPage):
    empty_text = "The command forward hands facts over."
