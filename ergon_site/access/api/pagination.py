"""Lists as `{results, next, previous}`, by cursor: as fast on the last page as on the first."""

from typing import Any

from rest_framework.pagination import CursorPagination
from rest_framework.response import Response


class NewestFirst(CursorPagination):
    page_size = 50
    max_page_size = 1000
    page_size_query_param = "limit"
    # Keys grow with time and never tie, which a cursor needs and times do not promise.
    ordering: str | tuple[str, ...] = "-id"

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self.get_next_link(), "previous": self.get_previous_link()})


class ByName(NewestFirst):
    ordering = "name"
