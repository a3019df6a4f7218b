"""The search field of a list: which filters its text may name, and the chips of what is chosen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import CharField, Model

from ergon_site.access.core.search_terms import Search

LONGEST_SEARCH = 500


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter or a part of the search, and the address of the list without it."""

    label: str
    address: str


def parameters(model: type[Model], filters: Iterable[Any]) -> dict[str, str]:
    """The filters that a search may name, with the parameter of each: those of words, not those of rows by number."""
    found = {}
    for one in filters:
        if isinstance(one, type) and issubclass(one, SimpleListFilter):
            found[str(one.parameter_name)] = str(one.parameter_name)
        elif isinstance(one, str) and isinstance(model._meta.get_field(one), CharField):  # noqa: SLF001 (Django's own way)
            found[one] = f"{one}__exact"
    return found


def chips(changes: Any, search: Search) -> Iterator[Chip]:
    """What a list is filtered by, in the order of its filters and then of the search text."""
    for spec in changes.filter_specs:
        given = [name for name in spec.expected_parameters() if name in changes.filter_params]
        if given and not search.filters.keys() & {name.partition("__")[0] for name in given}:
            yield Chip(f"{spec.title}: {_chosen(changes, spec)}", changes.get_query_string(remove=given))
    for term in search.terms:
        left = search.without(term)
        address = (
            changes.get_query_string({SEARCH_VAR: left}) if left else changes.get_query_string(remove=[SEARCH_VAR])
        )
        yield Chip(f"{term.name}: {term.value or '…'}" if term.name else f"text: {term.value}", address)


def _chosen(changes: Any, spec: Any) -> str:
    if isinstance(spec, SimpleListFilter):
        titles = {str(value): str(title) for value, title in spec.lookup_choices}
        return titles.get(str(spec.value()), str(spec.value()))
    shown = (str(choice["display"]) for choice in spec.choices(changes) if choice.get("selected"))
    return next(shown, ", ".join(str(value) for value in spec.used_parameters.values()))
