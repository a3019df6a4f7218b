"""Shared by the console's pages: rights instead of model permissions, exports, reasons."""

import csv
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import label_for_field
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError, InterfaceError, transaction
from django.db.models import Model, QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse
from django.template.defaultfilters import slugify
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from unfold.admin import ModelAdmin
from unfold.forms import BaseDialogForm
from unfold.views import ChangeList

from ergon_site.access import saved_views
from ergon_site.access.console import search
from ergon_site.access.console.fields import WhyField
from ergon_site.access.console.palette import Deed, Found
from ergon_site.access.console.search import Chip
from ergon_site.access.core.roles import Right, reason_missing
from ergon_site.access.core.saved_views import kept
from ergon_site.access.core.search_terms import Search, parse
from ergon_site.access.database.clock import page_time
from ergon_site.access.streaming import StreamedAnswer

logger = logging.getLogger(__name__)

# Full-width signs too: spreadsheets take them for the plain ones.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
ROWS_PER_FETCH = 2000
LINES_AT_ONCE = 200
BROKEN_OFF = "\nRows are missing: the database failed during this export.\n"
COLUMNS = "ergon-columns"


# The pages of the installed apps, by model. The console takes them from here, so that a project's own admin has none.
PAGES: dict[type[Model], type[ModelAdmin]] = {}
P = TypeVar("P", bound=type[ModelAdmin])


def registered(model: type[Model]) -> Callable[[P], P]:
    """Makes a class the console's page of a model."""

    def register(page: P) -> P:
        PAGES[model] = page
        return page

    return register


def actor(request: HttpRequest) -> str:
    """The person behind a request, as the audit log names them."""
    return request.user.get_username()


def without_request_transaction(addresses: list[Any]) -> list[Any]:
    """The addresses, with views outside of the transaction that a project may begin with each request.

    Verbs bring their own, which try again after a conflict and hold nothing while a page is drawn.
    """
    for one in addresses:
        if isinstance(one, URLPattern):
            transaction.non_atomic_requests(one.callback)
    return addresses


def done(address: str) -> HttpResponse:
    """The answer to a dialog that did its work: close it and show the page."""
    return HttpResponse(headers={"HX-Redirect": address})


class ReasonForm(BaseDialogForm):
    reason = WhyField()


class ConsoleList(ChangeList):
    """A list that is filtered by the filters it offers, and by no other column or lookup."""

    result_list: Any
    query: str
    filter_params: dict[str, list[str]]
    # Why the search finds nothing, if it asks for what there is not.
    search_problem = ""

    @cached_property
    def search(self) -> Search:
        """The text of the search field, in parts."""
        # Each part is a chip and a condition: a text with thousands of them is not even parsed.
        if len(self.query) > self.model_admin.longest_search:
            raise IncorrectLookupParameters
        named = search.parameters(self.model, self.list_filter)
        return parse(self.query, [*named, *self.model_admin.search_names])

    @property
    def chips(self) -> Iterator[Chip]:
        return search.chips(self, self.search)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        typed, self.query = self.query, self.search.text
        try:
            rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        finally:
            self.query = typed
        return rows

    def get_filters(self, request: HttpRequest) -> Any:
        if any("\x00" in value for values in self.filter_params.values() for value in values):
            raise IncorrectLookupParameters
        # As if they had been chosen: a search filters by the very filters of the list.
        named = search.parameters(self.model, self.list_filter)
        typed = {named[name]: [value] for name, value in self.search.filters.items() if name in named and value}
        chosen, self.filter_params = self.filter_params, {**self.filter_params, **typed}
        try:
            specs, has_filters, undeclared, *rest = super().get_filters(request)
        finally:
            self.filter_params = chosen
        if undeclared:
            # Django takes any column for a filter: fields that pages hide could be guessed letter by letter.
            raise IncorrectLookupParameters
        return specs, has_filters, undeclared, *rest

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list: Any = self.model_admin.decorate(request, self.result_list)

    @property
    def offered_columns(self) -> list[dict[str, Any]]:
        """All columns of the list, and which are shown; the first one always is."""
        return [
            {
                "name": name,
                "label": capfirst(str(label_for_field(name, self.model, model_admin=self.model_admin))),
                "is_shown": name in self.list_display,
                "is_fixed": place == 0,
            }
            for place, name in enumerate(self.model_admin.list_display)
        ]


class ConsolePage(ModelAdmin):
    """A window on a table for those with `view_right`; only a page that names an `edit_right` changes anything."""

    view_right: ClassVar[Right] = Right.VIEW
    edit_right: ClassVar[Right | None] = None
    list_max_show_all = 0  # no link that shows all rows at once
    # Columns of the list that are shown only to those who choose them.
    columns_on_request: ClassVar[tuple[str, ...]] = ()
    # Columns, or names with the column or expression behind each.
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = ()
    # What its search understands besides the names of its filters.
    search_names: ClassVar[tuple[str, ...]] = ()
    longest_search: ClassVar[int] = search.LONGEST_SEARCH
    # The column or expression by which the palette finds rows of a small table, what it says of each, and the acts it
    # offers beside them; and whether it shows them before anything is typed.
    found_by: ClassVar[Any] = ""
    found_mark: ClassVar[Any] = Value("")
    deeds: ClassVar[tuple[Deed, ...]] = ()
    is_offered: ClassVar[bool] = False
    # Below the address of a row, what the key r opens, and the right that it takes.
    replay_path: ClassVar[str] = ""
    replay_right: ClassVar[Right] = Right.OPERATE

    show_full_result_count = False
    list_per_page = 50
    list_fullwidth = True
    list_filter_submit = True
    list_after_template = "console/list_after.html"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return holds(request, self.view_right)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.edit_right is not None and holds(request, self.edit_right)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.edit_right is not None and holds(request, self.edit_right)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    # Of actions that name a right as their permission.
    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.OPERATE)

    def has_lead_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.LEAD)

    def has_administer_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return holds(request, Right.ADMINISTER)

    @property
    def urls(self) -> list[URLPattern]:
        return without_request_transaction(super().urls)

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_export"
        export = path("export.<slug:form>", self.admin_site.admin_view(self.export_view), name=name)
        return [export, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ConsoleList]:
        return ConsoleList

    def get_list_display(self, request: HttpRequest) -> Any:
        """The columns that the reader has chosen: a cookie, of this list alone, names those that are left out."""
        chosen = request.COOKIES.get(COLUMNS)
        left_out = self.columns_on_request if chosen is None else chosen.split(".")
        return [name for place, name in enumerate(self.list_display) if place == 0 or name not in left_out]

    def decorate(self, request: HttpRequest, rows: Any) -> Any:
        """The rows of one page of the list, with what their columns need besides."""
        return rows

    def found_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows among which the palette finds by a column."""
        rows: QuerySet[Any] = self.model._default_manager.all()  # noqa: SLF001 (Django's own way)
        return rows

    def found_address(self, key: Any) -> str:
        return self.address(key)

    def find(self, request: HttpRequest, text: str) -> Iterable[Found]:
        """The few rows of a large table that a text may mean, by an index."""
        return ()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        place, query = f"{self.opts.app_label}_{self.opts.model_name}", kept(request.GET.urlencode())
        views = saved_views.of_list(request.user, place)
        refusal = "" if holds(request, self.replay_right) else reason_missing(self.replay_right)
        shown = {
            "title": capfirst(self.opts.verbose_name_plural),
            "read_at": page_time(),
            "exports": ["csv", "json"] if self.export_fields else [],
            "filters": request.GET.urlencode(),
            "saved_views": views,
            "place": place,
            "kept_query": query,
            "is_saved": any(view.query == query for view in views),
            "replay_refusal": refusal,
            **(extra_context or {}),
        }
        response: HttpResponse = super().changelist_view(request, shown)
        return response

    def page(
        self, request: HttpRequest, template: str, title: str, original: Model | None = None, **context: Any
    ) -> HttpResponse:
        shared = {"opts": self.opts, "original": original, "title": title, "crumb": title, "read_at": page_time()}
        return TemplateResponse(request, template, {**self.admin_site.each_context(request), **shared, **context})

    def address(self, object_id: Any) -> str:
        return reverse(f"ergon:{self.opts.app_label}_{self.opts.model_name}_change", args=[object_id])

    def export_view(self, request: HttpRequest, form: str) -> StreamedAnswer:
        """The list as filtered, streamed as a file."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if form not in EXPORTS or not self.export_fields:
            raise Http404
        try:
            changes = self.get_changelist_instance(request)
            rows = changes.get_queryset(request)
        except IncorrectLookupParameters as error:
            msg = "This list has no such filter, or the filter has no such value."
            raise BadRequest(msg) from error
        if changes.search_problem:
            raise BadRequest(changes.search_problem)
        return self.file(rows, form)

    def file(self, rows: QuerySet[Model], form: str) -> StreamedAnswer:
        write, content_type = EXPORTS[form]
        name = f"{slugify(self.opts.verbose_name_plural)}.{form}"
        return StreamedAnswer(
            _sent(write(self.export_fields, self.exported(rows))),
            content_type=content_type,
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    def exported(self, rows: QuerySet[Model]) -> Iterator[tuple[Any, ...]]:
        fields = self.export_fields
        columns = fields.values() if isinstance(fields, Mapping) else fields
        return rows.values_list(*columns).iterator(chunk_size=ROWS_PER_FETCH)


def _sent(lines: Iterator[str]) -> Iterator[str]:
    """Many lines at once. A file that ends too early looks whole to whoever takes it, so it says so."""
    try:
        while part := "".join(islice(lines, LINES_AT_ONCE)):
            yield part
    except (DatabaseError, InterfaceError) as error:
        logger.warning("The database failed during an export", exc_info=error)
        yield BROKEN_OFF


def holds(request: HttpRequest, right: Right) -> bool:
    return request.user.has_perm(right.permission)


def _csv(fields: Collection[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    writer = csv.writer(SimpleNamespace(write=str))  # whose lines are sent at once
    yield writer.writerow(fields)
    for row in rows:
        cells = (one if isinstance(one, str) else json.dumps(one, cls=DjangoJSONEncoder).strip('"') for one in row)
        # A spreadsheet would run a cell that starts like a formula.
        yield writer.writerow(f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell for cell in cells)


def _json(fields: Collection[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    separator = "[\n"
    for row in rows:
        yield separator + json.dumps(dict(zip(fields, row, strict=True)), cls=DjangoJSONEncoder)
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


EXPORTS = {"csv": (_csv, "text/csv; charset=utf-8"), "json": (_json, "application/json")}
