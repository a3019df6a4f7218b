"""Saved views: filtered lists under names, opened by a link that can be sent, changed by those who saved them."""

from typing import Any, ClassVar

from django import forms
from django.apps import apps
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget

from ergon_site.access import saved_views
from ergon_site.access.console.buttons import Button, bar
from ergon_site.access.console.cells import column
from ergon_site.access.console.detail import DetailPage
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.pages import holds, registered
from ergon_site.access.core.roles import Right
from ergon_site.access.core.saved_views import LONGEST_NAME, kept
from ergon_site.access.core.texts import sentence
from ergon_site.access.models import SavedView
from ergon_site.access.saved_views import ViewRefusedError


def _name() -> forms.CharField:
    return forms.CharField(max_length=LONGEST_NAME, widget=UnfoldAdminTextInputWidget)


def _shared() -> forms.BooleanField:
    return forms.BooleanField(label="Share with everybody", required=False, widget=UnfoldBooleanSwitchWidget)


def _title(place: str) -> str:
    """The name of a list, if its app is installed."""
    app, _, model = place.rpartition("_")
    try:
        return capfirst(str(apps.get_model(app, model)._meta.verbose_name_plural))  # noqa: SLF001 (Django's own way)
    except LookupError:
        return place


class NewViewForm(forms.Form):
    name = _name()
    is_shared = _shared()
    place = forms.CharField(max_length=100, widget=forms.HiddenInput)
    query = forms.CharField(required=False, widget=forms.HiddenInput)


class ViewForm(BaseDialogForm):
    name = _name()
    is_shared = _shared()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        view = SavedView.objects.filter(pk=self.object_id).values("name", "is_shared").first()
        self.initial: dict[str, Any] = dict(view or {})


EDIT = {"title": "Change the view", "form_class": ViewForm, "submit": "Save"}
REMOVE = {
    "title": "Delete the view",
    "description": "Links to it stop working. Nothing else changes.",
    "form_class": BaseDialogForm,
    "keep": "Keep it",
}


@registered(SavedView)
class SavedViewsPage(DetailPage):
    related = ("owner",)
    detail_template = "console/saved_view.html"
    refused_by = (ViewRefusedError,)
    actions_detail = ("edit", "remove")
    new_title = "New view"
    new_form = NewViewForm
    new_terms: ClassVar = {"submit_text": "Save view"}
    empty_text = "Filter a list, then choose Save this view above it."
    list_display = ("name", "of_list", "owner", "seen_by", "made")
    search_fields = ("name__startswith",)
    search_help_text = "Start of a name"
    export_fields = ("name", "place", "query", "owner__username", "is_shared", "created_at")
    found_by = "name"
    found_mark = Case(When(is_shared=True, then=Value("shared")), default=Value("private"))
    is_offered = True

    made = column("created", lambda view: view.created_at, ordering="created_at")
    of_list = column("list", lambda view: _title(view.place))
    seen_by = column("seen by", lambda view: "everybody" if view.is_shared else "its owner", ordering="is_shared")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.open_view)
        return [path("<int:view_id>/open/", view, name="access_savedview_open"), *super().get_urls()]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return holds(request, Right.VIEW)

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        # A view is saved from its list, which alone knows the filters.
        return {**super().get_model_perms(request), "add": False}

    def get_queryset(self, request: HttpRequest) -> QuerySet[SavedView]:
        """Those that the person may see, of lists that the person may see."""
        return saved_views.visible_to(request.user).filter(place__in=self._pages(request))

    def found_rows(self, request: HttpRequest) -> QuerySet[SavedView]:
        return self.get_queryset(request).select_related(None)

    def found_address(self, key: Any) -> str:
        return reverse("ergon:access_savedview_open", args=[key])

    def open_view(self, request: HttpRequest, view_id: int) -> HttpResponse:
        view = self.row(request, str(view_id))
        return redirect(f"{reverse(f'ergon:{view.place}_changelist')}?{view.query}")

    def details(self, request: HttpRequest, row: SavedView) -> dict[str, Any]:
        why = saved_views.refusal(request.user, row)
        address = {name: reverse(f"ergon:access_savedview_{name}", args=[row.pk]) for name in self.actions_detail}
        titles = {"edit": "Change", "remove": "Delete"}
        refusal = sentence(why) if why else ""
        buttons = [
            Button(title=titles[name], address=address[name], is_dialog=True, refusal=refusal) for name in address
        ]
        return {
            "view": row,
            "list_title": _title(row.place),
            "link": request.build_absolute_uri(self.found_address(row.pk)),
            "bar": bar(*buttons),
        }

    def filled_form(self, request: HttpRequest) -> NewViewForm:
        return NewViewForm(request.POST or None, initial=request.GET.dict())

    def make(self, request: HttpRequest, form: NewViewForm) -> HttpResponse:
        told = form.cleaned_data
        if told["place"] not in self._pages(request):
            raise PermissionDenied
        shared = {"is_shared": told["is_shared"]}
        view = saved_views.save(request.user, told["place"], told["name"], kept(told["query"]), **shared)
        messages.success(request, f"Saved as {view.name}{', shared with everybody' if view.is_shared else ''}.")
        return redirect(self.found_address(view.pk))

    @dialog_action(description="Change", url_path="edit", dialog=EDIT)
    def edit(self, request: HttpRequest, form: ViewForm, object_id: str) -> HttpResponse:
        row, told = self.row(request, object_id), form.cleaned_data

        def change() -> None:
            saved_views.change(request.user, row.pk, name=told["name"], is_shared=told["is_shared"])

        return self.carry_out(request, change, "Saved.", row.pk)

    @dialog_action(description="Delete", url_path="remove", dialog=REMOVE)
    def remove(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        row = self.row(request, object_id)

        def remove() -> str:
            saved_views.delete(request.user, row.pk)
            return reverse(f"ergon:{row.place}_changelist")

        return self.carry_out(request, remove, f"The view {row.name} is deleted.", row.pk)

    def _pages(self, request: HttpRequest) -> dict[str, Any]:
        """The lists that the person may see."""
        pages = self.admin_site._registry.values()  # noqa: SLF001 (Django's own way)
        return {f"{one.opts.app_label}_{one.opts.model_name}": one for one in pages if one.has_view_permission(request)}
