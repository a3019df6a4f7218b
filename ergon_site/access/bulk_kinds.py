"""Kinds of rows that bulk operations act on. Installed apps declare theirs under `ergon_bulk_kinds`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.db.models import QuerySet
from django.utils.module_loading import import_string

from ergon_site.access.conf import declared_by_apps
from ergon_site.access.keyset import KeysetQuery


class BulkVerb(Protocol):
    """What is done to one row. A refusal of it is one of the kind's `skipped_by` or `refused_by`."""

    def __call__(self, row: Any, /, *, by: str, reason: str) -> str:
        """Do it, in the caller's database transaction; the id of a replay, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkKind:
    """Rows that many can be acted on at once: how they are found, named and locked, and what can be done to each."""

    name: str
    rows: Callable[[], QuerySet[Any]]
    # Rows by the words of a list's filters and search; a ListingError if they mean nothing.
    find: Callable[[Mapping[str, str]], KeysetQuery]
    words: frozenset[str]
    # The column by which people and machines name a row.
    key: str
    verbs: Mapping[str, BulkVerb]
    # For each row why a verb would not be done to it now; empty if it would.
    refusals: Callable[[str, Sequence[Any]], list[str]]
    # Locks rows, in the order in which every verb locks them; in the order in which they are to be acted on.
    lock: Callable[[str, Sequence[Any]], list[Any]]
    # The row is not any more, or not in the state, that the verb is for.
    skipped_by: tuple[type[Exception], ...] = ()
    refused_by: tuple[type[Exception], ...] = ()
    label: Callable[[Any], str] = str
    born: str = "created_at"
    # What a client of the API needs.
    scope: str = "transactions:operate"

    @property
    def noun(self) -> str:
        return str(self.rows().model._meta.verbose_name)  # noqa: SLF001 (Django's own way)

    @property
    def nouns(self) -> str:
        return str(self.rows().model._meta.verbose_name_plural)  # noqa: SLF001


def bulk_kinds() -> dict[str, BulkKind]:
    """The kinds of the installed apps, by name."""
    found = (import_string(path) for paths in declared_by_apps("ergon_bulk_kinds") for path in paths)
    return {kind.name: kind for kind in found}
