"""The lists of facts: their filters and columns."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.http import HttpRequest
from unfold.decorators import display

from ergon_site.access.lists import Choice, Typed, two_lines, words
from facts.models import Boundary, Written


def boundaries(request: Any) -> list[Boundary]:
    """All of them, asked for once in a request."""
    if not hasattr(request, "all_boundaries"):
        request.all_boundaries = list(Boundary.objects.select_related("from_zone", "to_zone"))
    found: list[Boundary] = request.all_boundaries
    return found


class BoundaryFilter(Choice):
    title = parameter_name = "boundary"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(one.pk), str(one)) for one in boundaries(request)]


class MessageFilter(Typed):
    title = "message id"
    parameter_name = "message"


class SubjectFilter(Typed):
    title = parameter_name = "subject"


class CorrelationFilter(Typed):
    title = "correlation id"
    parameter_name = "correlation"


class FactColumns:
    """The columns of the list of facts, without their content."""

    list_display: ClassVar = ("key", "about", "where", "correlated", "written_at")
    list_filter: ClassVar = [BoundaryFilter, MessageFilter, SubjectFilter, CorrelationFilter]
    search_help_text = "A message id, subject or correlation id"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = {
        "from_zone": "boundary__from_zone__name",
        "to_zone": "boundary__to_zone__name",
        **{name: name for name in ("offset", "message_id", "subject", "predicate", "correlation_id", "causation_id")},
        **{name: name for name in ("digest", "written_at")},
    }

    @display(description="message id")
    def key(self, fact: Written) -> str:
        return words(fact.message_id)

    @display(description="subject and predicate")
    def about(self, fact: Written) -> str:
        return two_lines(fact.subject, fact.predicate)

    @display(description="boundary and offset")
    def where(self, fact: Written) -> str:
        return two_lines(fact.boundary, f"{fact.offset:,}")

    @display(description="correlation id")
    def correlated(self, fact: Written) -> str:
        return words(fact.correlation_id) if fact.correlation_id else "–"
