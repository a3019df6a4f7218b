"""VERBS of saved views: save, change, delete. One that everybody sees leaves an entry in the audit log."""

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from ergon_site.access import audit
from ergon_site.access.core import saved_views as rules
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.models import SavedView


class ViewRefusedError(Exception):
    """A view that cannot be as it is asked for; `field` is what is wrong with it."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def visible_to(person: Any) -> QuerySet[SavedView]:
    """The person's own views, and those that somebody shares."""
    return SavedView.objects.select_related("owner").filter(Q(owner_id=person.pk) | Q(is_shared=True))


def of_list(person: Any, place: str) -> list[SavedView]:
    """The views of one list, the person's own first."""
    found = visible_to(person).filter(place=place)
    return sorted(found, key=lambda view: (view.owner_id != person.pk, view.name.lower(), view.pk))


@retry_conflicts
@transaction.atomic
def save(person: Any, place: str, name: str, query: str, *, is_shared: bool) -> SavedView:
    """Keep a filtered list under a name."""
    _check(name, query)
    if SavedView.objects.filter(owner_id=person.pk).count() >= rules.MOST_OF_A_PERSON:
        msg = f"you have {rules.MOST_OF_A_PERSON} saved views already: delete one first"
        raise ViewRefusedError(msg)
    view = SavedView(owner=person, place=place, name=name, query=query, is_shared=is_shared)
    _store(view)
    if is_shared:
        _record("create", view, after=_told(view))
    return view


@retry_conflicts
@transaction.atomic
def change(person: Any, view_id: int, *, name: str, is_shared: bool) -> SavedView:
    """Give a view another name; share it, or keep it to oneself again."""
    view = _owned(person, view_id)
    _check(name, view.query)
    before = _told(view)
    view.name, view.is_shared = name, is_shared
    _store(view)
    if is_shared or before["shared"]:
        _record("change", view, before=before, after=_told(view))
    return view


@retry_conflicts
@transaction.atomic
def delete(person: Any, view_id: int) -> None:
    view = _owned(person, view_id)
    if view.is_shared:
        _record("delete", view, before=_told(view))
    SavedView.objects.filter(pk=view.pk).delete()


def refusal(person: Any, view: SavedView) -> str:
    """Why a person may not change a view; empty if it is their own."""
    return "" if view.owner_id == person.pk else f"only {view.owner.get_username()}, who saved it, can change it"


def _owned(person: Any, view_id: int) -> SavedView:
    view = SavedView.objects.select_for_update(of=("self",)).select_related("owner").filter(pk=view_id).first()
    if view is None:
        msg = "the view is gone"
        raise ViewRefusedError(msg)
    if why := refusal(person, view):
        raise ViewRefusedError(why)
    return view


def _check(name: str, query: str) -> None:
    try:
        rules.check_name(name)
    except ValueError as error:
        raise ViewRefusedError(str(error), "name") from None
    try:
        rules.check_query(query)
    except ValueError as error:
        raise ViewRefusedError(str(error)) from None


def _store(view: SavedView) -> None:
    others = SavedView.objects.filter(place=view.place, is_shared=True).exclude(pk=view.pk)
    if view.is_shared and others.count() >= rules.MOST_SHARED:
        msg = f"{rules.MOST_SHARED} views of this list are shared already"
        raise ViewRefusedError(msg, "is_shared")
    try:
        with transaction.atomic():
            view.save()
    except IntegrityError:
        msg = "you have a view of this list with this name"
        raise ViewRefusedError(msg, "name") from None


def _told(view: SavedView) -> dict[str, Any]:
    return {"name": view.name, "list": view.place, "query": view.query, "shared": view.is_shared}


def _record(act: str, view: SavedView, **change: Any) -> None:
    audit.record(
        actor=view.owner.get_username(),
        action=f"saved_view.{act}",
        target=f"saved view {view.pk}: {view.name}",
        **change,
    )
