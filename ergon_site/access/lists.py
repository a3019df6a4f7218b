"""Lists of the console that stay fast however long they are, and the filters above them."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, ClassVar

from django.contrib.admin import ShowFacets, SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from ergon_site.access import keyset, tables
from ergon_site.access.core.roles import Right
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.pages import ConsoleList, ConsolePage, holds
from ergon_site.access.tables import Column

AT = "at"
LONGEST_VALUE = 300
LONGEST_TITLE = 500
FULL = 100.0


class KeysetList(ConsoleList):
    """A list that shows one page of the keyset query of its admin page."""

    class paginator:  # noqa: N801 (the theme asks it for nothing but this)
        template_name = "console/keyset_pages.html"

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        self.filter_params.pop(AT, None)
        self.filter_specs, self.has_filters, *_ = self.get_filters(request)
        wanted = {spec.parameter_name: spec.value() for spec in self.filter_specs if spec.value()} | {"q": self.query}
        if any(len(value) > self.model_admin.longest_value or "\x00" in value for value in wanted.values()):
            raise IncorrectLookupParameters
        self.has_active_filters = len(wanted) > 1
        self.keyset_query = self.model_admin.keyset_query(request, wanted)
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
        self.result_list = self.model_admin.decorate(request, self.slice.rows)
        # Alike, so that the theme counts nothing above the list: the page's own words stand below it.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = self.show_admin_actions = False
        self.can_show_all = self.multi_page = False

    @property
    def columns(self) -> list[Column]:
        return tables.columns(self)

    @property
    def body(self) -> str:
        return tables.body(self)

    @property
    def counted(self) -> str:
        """The number of rows, where an index tells."""
        count = self.keyset_query.count()
        return "" if count is None else keyset.counted(count)

    @property
    def looked_through(self) -> str:
        return f"{self.slice.looked_through:,}" if self.slice.looked_through else ""

    @property
    def previous_address(self) -> str:
        return self.get_query_string({AT: self.slice.previous}) if self.slice.previous else ""

    @property
    def next_address(self) -> str:
        return self.get_query_string({AT: self.slice.next}) if self.slice.next else ""


class KeysetPage(ConsolePage):
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
        """The keyset query for the filters and the search (`q`)."""
        raise NotImplementedError

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        """The rows of one page, with what their columns need besides."""
        return rows

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.OPERATE)

    def has_lead_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.LEAD)

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[KeysetList]:
        return KeysetList


def words(text: str) -> str:
    """A longer text in a column: wrapped, and cut after two lines."""
    return format_html('<span class="ergon-words" title="{}">{}</span>', text[:LONGEST_TITLE], text[:LONGEST_TITLE])


def tag(word: str, kinds: Mapping[str, str]) -> str:
    """A state as a small coloured word."""
    return format_html('<span class="ergon-tag ergon-tag-{}">{}</span>', kinds.get(word, "plain"), word)


def two_lines(text: object, small: object) -> str:
    """A column with a smaller line below."""
    both = '<span class="ergon-two"><span title="{}">{}</span><span class="ergon-small">{}</span></span>'
    return format_html(both, text, text, small)


def identifier(text: str) -> str:
    """An id: on one line if it is as long as ids usually are."""
    return format_html('<span class="ergon-id">{}</span>', text)


def unbroken(text: object) -> str:
    """A word that stays on one line."""
    return format_html('<span class="ergon-when">{}</span>', text)


def anchor(address: str, text: object) -> str:
    return format_html('<a class="ergon-link" href="{}">{}</a>', address, text)


def meter(percent: float, text: str, *, warning: float) -> str:
    """A bar of how full something is, and a text beside it; it changes colour at the warning line."""
    kind = "bad" if percent >= FULL else "warning" if percent >= warning else "good"
    bar = '<span class="ergon-meter ergon-meter-{}"><span class="ergon-lane" aria-hidden="true">'
    whole = bar + '<span style="left:0;width:{}%"></span></span><span>{}</span></span>'
    return format_html(whole, kind, f"{min(percent, FULL):.1f}", text)


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
