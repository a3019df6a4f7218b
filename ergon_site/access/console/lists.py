"""Lists of the console that stay fast however long they are, and the filters above them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib.admin import ShowFacets, SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import label_for_field
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import conditional_escape, escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from ergon_site.access import keyset
from ergon_site.access.console import selection
from ergon_site.access.console.cells import UNKNOWN, moment
from ergon_site.access.console.pages import ConsoleList
from ergon_site.access.console.selection import SelectablePage
from ergon_site.access.core.texts import sentence
from ergon_site.access.keyset import KeysetQuery, ListingError

AT = "at"
LONGEST_VALUE = 300


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, where a row's value comes from, and whether it links to the row's page."""

    label: str
    value: Callable[[Any], Any]
    is_link: bool
    # Its heading as an attribute of each cell.
    named: str

    def cell(self, row: Any, address: str) -> str:
        """The cell of a row as HTML; each value escapes what it shows."""
        value = self.value(row)
        is_empty = value is None or value in ("", UNKNOWN)
        # On a narrow screen a cell without a value is left out, and a number needs its heading.
        kind = ' class="ergon-none"' if is_empty else ' class="ergon-amount"' if isinstance(value, int | float) else ""
        shown = UNKNOWN if is_empty else moment(value) if isinstance(value, datetime) else conditional_escape(value)
        if self.is_link:
            return f'<th scope="row"{kind} {self.named}><a href="{address}">{shown}</a></th>'
        return f"<td{kind} {self.named}>{shown}</td>"


class KeysetList(ConsoleList):
    """A list that shows one page of the keyset query of its admin page."""

    class paginator:  # noqa: N801 (the theme asks it for nothing but this)
        template_name = "console/keyset_pages.html"

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        self.filter_params.pop(AT, None)
        self.filter_specs, self.has_filters, *_ = self.get_filters(request)
        found = self.search
        wanted = {name: value for name, value in found.filters.items() if value}
        wanted |= {spec.parameter_name: spec.value() for spec in self.filter_specs if spec.value()} | {"q": found.text}
        longest = self.model_admin.longest_value
        if any(len(value) > longest or "\x00" in value for value in wanted.values()):
            raise IncorrectLookupParameters
        self.has_active_filters, self.wanted = len(wanted) > 1, wanted
        try:
            self.keyset_query = self.model_admin.keyset_query(request, wanted)
        except ListingError as error:
            if not found.filters:
                raise IncorrectLookupParameters from error
            self.search_problem = sentence(error)
            self.keyset_query = KeysetQuery(rows=self.model._default_manager.none())  # noqa: SLF001 (Django's own way)
        self.clear_all_filters_qs = self.get_query_string(remove=self.get_filters_params())
        rows: QuerySet[Any] = self.keyset_query.all()
        return rows

    def get_filters_params(self, params: Any = None) -> Any:
        found = super().get_filters_params(params)
        found.pop(AT, None)
        return found

    def get_results(self, request: HttpRequest) -> None:
        asked = sorted((name, values) for name, values in self.filter_params.items() if name != AT)
        tag = sha256(repr(asked).encode()).hexdigest()[:8]
        self.slice = keyset.paginate(self.keyset_query, size=self.list_per_page, at=request.GET.get(AT, ""), tag=tag)
        found = self.slice
        self.page_number = found.number
        self.looked_through = f"{found.looked_through:,}" if found.looked_through else ""
        self.previous_address = self.get_query_string({AT: found.previous}) if found.previous else ""
        self.next_address = self.get_query_string({AT: found.next}) if found.next else ""
        self.result_list = self.model_admin.decorate(request, found.rows)
        # Alike, so that the theme counts nothing above the list: the page's own words stand below it.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = self.show_admin_actions = False
        self.can_show_all = self.multi_page = False

    @cached_property
    def columns(self) -> list[Column]:
        links = self.list_display_links or self.list_display[:1]
        shown = []
        for name in self.list_display:
            own = getattr(self.model_admin, name, None)
            label = capfirst(str(label_for_field(name, self.model, model_admin=self.model_admin)))
            value = own if callable(own) else attrgetter(name)
            shown.append(Column(label, value, name in links, f'data-label="{escape(label)}"'))
        return shown

    @property
    def body(self) -> SafeString:
        """The rows as HTML: the theme's own way of writing them costs more than finding them."""
        folder = reverse(f"ergon:{self.opts.app_label}_{self.opts.model_name}_changelist")
        parts = []
        for row in self.result_list:
            key = escape(self.model_admin.key_of(row))
            address = f"{folder}{key}/change/"
            # By its id a refresh knows the row again, wherever it has moved to.
            parts.append(f'<tbody id="row-{key}"><tr class="data-row" data-key="{key}">')
            parts.append(selection.row_box(self.model_admin, row))
            parts += [column.cell(row, address) for column in self.columns]
            parts.append("</tr></tbody>")
        return mark_safe("".join(parts))  # noqa: S308 (each cell escapes what it shows)

    @cached_property
    def counted(self) -> str:
        """The number of rows, where an index tells."""
        count = self.keyset_query.count()
        return "" if count is None else keyset.counted(count)


class KeysetPage(SelectablePage):
    """An admin page whose list is a keyset query."""

    actions = None
    change_list_template = "console/keyset_list.html"
    show_facets = ShowFacets.NEVER
    sortable_by: ClassVar[tuple[str, ...]] = ()
    # The theme draws the search field where a page names fields; the keyset query does the search.
    search_fields: ClassVar[tuple[str, ...]] = ("pk",)
    longest_value: ClassVar[int] = LONGEST_VALUE

    def key_of(self, row: Any) -> Any:
        """The key of a row in the address of its page."""
        return row.pk

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        """The keyset query for the filters and the search (`q`); a ListingError if there is none."""
        raise NotImplementedError

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[KeysetList]:
        return KeysetList


class Choice(SimpleListFilter):
    """A filter that offers words; the keyset query does the filtering."""

    template = "console/filter_choice.html"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        value, offered = self.value(), [(str(lookup), title) for lookup, title in self.lookup_choices]
        if value and value not in dict(offered):
            offered.append((value, value))
        for lookup, title in [("", "All"), *offered]:
            yield {"value": lookup, "title": title, "is_chosen": lookup == (value or "")}


class Typed(Choice):
    """A filter that is typed in."""

    template = "console/filter_text.html"
    help_text = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []


def choice(name: str, offered: Iterable[str] | Mapping[str, str], title: str = "") -> type[Choice]:
    """A filter that offers these words, or words under other titles."""
    titles = offered if isinstance(offered, Mapping) else {str(word): str(word) for word in offered}
    return choice_of(name, lambda _: list(titles.items()), title)


def choice_of(name: str, find: Callable[[HttpRequest], list[tuple[str, str]]], title: str = "") -> type[Choice]:
    """A filter that offers what is there when somebody asks: words and their titles."""
    named = {"title": title or name, "parameter_name": name}
    return type("ChoiceFilter", (Choice,), {**named, "lookups": lambda _, request, __: find(request)})


def typed(name: str, title: str = "", help_text: str = "") -> type[Typed]:
    return type("TypedFilter", (Typed,), {"title": title or name, "parameter_name": name, "help_text": help_text})
