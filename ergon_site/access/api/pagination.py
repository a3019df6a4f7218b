"""Lists as `{results, next, previous}`, by cursor: as fast on the last page as on the first."""

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from ergon_site.access.core.texts import is_storable

LARGEST = 2**63 - 1


class NewestFirst(CursorPagination):
    page_size = 50
    max_page_size = 1000
    page_size_query_param = "limit"
    # Keys grow with time and never tie, which a cursor needs and times do not promise.
    ordering: str | tuple[str, ...] = "-id"

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        self.model = queryset.model
        return super().paginate_queryset(queryset, request, view)

    def decode_cursor(self, request: Request) -> Cursor | None:
        """The position of a cursor; one that no page has given out is refused before the database sees it."""
        cursor: Cursor | None = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None and not self._is_key(str(cursor.position)):
            raise NotFound(self.invalid_cursor_message)
        return cursor

    def _is_key(self, position: str) -> bool:
        column = self.model._meta.get_field(self.ordering[0].removeprefix("-"))  # noqa: SLF001 (Django's own way)
        try:
            value = column.to_python(position)
        except (ValidationError, ValueError, OverflowError):
            return False
        return is_storable(position) and (not isinstance(value, int) or abs(value) <= LARGEST)

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self.get_next_link(), "previous": self.get_previous_link()})


class ByName(NewestFirst):
    ordering = "name"
