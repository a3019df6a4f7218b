"""Shared by the long lists of providers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib.admin.options import IncorrectLookupParameters
from django.http import HttpRequest

from ergon_site.access.core.texts import is_key
from ergon_site.access.detail import DetailPage
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import KeysetPage
from providers.reads import lists


class KeysetDetailPage(KeysetPage, DetailPage):
    """A list in pages by keyset, and a page for each row."""

    looked_for: ClassVar[Any]  # of `reads.lists`

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        try:
            found: KeysetQuery = type(self).looked_for(wanted)
        except lists.ListingError as error:
            raise IncorrectLookupParameters from error
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        # A number that no key can be would make the database complain.
        return super().get_object(request, object_id, from_field) if is_key(object_id) else None
