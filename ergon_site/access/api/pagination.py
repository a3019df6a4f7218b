"""Lists as `{results, next, previous}`, by cursor: as fast on the last page as on the first."""

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from ergon_site.access import keyset


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
        if cursor is not None and cursor.position is not None:
            column = self.model._meta.get_field(self.ordering[0].removeprefix("-"))  # noqa: SLF001 (Django's own way)
            try:
                keyset.column_value(column, str(cursor.position))
            except (ValidationError, ValueError, OverflowError):
                raise NotFound(self.invalid_cursor_message) from None
        return cursor

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self.get_next_link(), "previous": self.get_previous_link()})


class ByName(NewestFirst):
    ordering = "name"
