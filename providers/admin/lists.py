"""Shared by the long lists of providers: pages by keyset, and the filters above them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import HttpRequest

from ergon_site.access.console import states
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.lists import Choice, KeysetPage, choice, typed
from ergon_site.access.core.texts import is_key
from ergon_site.access.keyset import KeysetQuery
from providers.reads.lists import OFFERED


class KeysetDetailPage(KeysetPage, DetailPage):
    """A list in pages by keyset, and a page for each row."""

    looked_for: ClassVar[Any]  # of `reads.lists`

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        found: KeysetQuery = type(self).looked_for(wanted)
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        # A number that no key can be would make the database complain.
        return super().get_object(request, object_id, from_field) if is_key(object_id) else None


def offered(name: str, words: Mapping[str, str] | None = None, *, kind: str = "") -> type[Choice]:
    """A filter of the words that the lists know; `words`, or the states of a `kind`, say how they are shown."""
    if kind:
        return choice(name, states.choices(kind, *OFFERED[name]))
    return choice(name, words or {word: word.replace("_", " ") for word in OFFERED[name]})


TENANT, PROVIDER, CAPABILITY = typed("tenant"), typed("provider"), typed("capability")
