"""Saved views: named, opened, shared, changed by their owners alone, and written down where others see them."""

from collections.abc import Callable
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ergon_site.access import saved_views
from ergon_site.access.core.saved_views import MOST_OF_A_PERSON, MOST_SHARED
from ergon_site.access.models import AuditEntry, SavedView
from ergon_site.access.saved_views import ViewRefusedError
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

LIST = "/admin/engines/transactionrecord/"
VIEWS = "/admin/access/savedview/"
PLACE = "engines_transactionrecord"


def save(client: Client, name: str, **terms: str) -> SavedView:
    told = {"place": PLACE, "query": "state=failed&at=abc", "name": name, **terms}
    answer = client.post(f"{VIEWS}add/", told)
    assert answer.status_code == 302, unescape(answer.text)
    return SavedView.objects.get(name=name)


def actions() -> list[tuple[str, str]]:
    told = AuditEntry.objects.filter(action__startswith="saved_view").order_by("pk")
    return [(entry.actor, entry.action) for entry in told]


@pytest.fixture
def others(hire: Callable[[str], User]) -> tuple[Client, Client]:
    """A viewer and an operator."""
    found = Client(), Client()
    for client, role in zip(found, ("viewer", "operator"), strict=True):
        client.force_login(hire(role))
    return found


def test_a_view_is_saved_listed_opened_and_found(others: tuple[Client, Client]) -> None:
    viewer, operator = others
    make_pipeline("orders")
    assert "Save this view" not in viewer.get(LIST).text
    page = viewer.get(f"{LIST}?state=failed&q=error:timeout").text
    assert "Save this view" in page
    assert 'name="query" value="q=error%3Atimeout&amp;state=failed"' in page
    view = save(viewer, "Failed")
    assert viewer.get(f"{VIEWS}{view.pk}/open/").headers["Location"] == f"{LIST}?state=failed"
    assert 'aria-current="true" title="Failed">Failed</a>' in viewer.get(f"{LIST}?state=failed").text
    assert 'title="Failed">Failed</a>' in viewer.get(LIST).text
    palette = viewer.get("/admin/search/", {"q": "fail"}, headers={"Accept": "application/json"}).json()
    assert ["Failed", "private", f"{VIEWS}{view.pk}/open/"] in [
        one for part in palette["sections"] for one in part["lines"]
    ]
    # Private: nobody else sees it anywhere, and no entry tells of it.
    assert 'title="Failed"' not in operator.get(LIST).text
    assert operator.get(f"{VIEWS}{view.pk}/open/").status_code == 404
    assert operator.get(f"{VIEWS}{view.pk}/change/").status_code == 404
    assert operator.get("/admin/search/", {"q": "Failed"}, headers={"Accept": "application/json"}).json() == {
        "sections": []
    }
    assert actions() == []


def test_a_shared_view_is_seen_by_all_changed_by_its_owner_and_audited(others: tuple[Client, Client]) -> None:
    viewer, operator = others
    view = save(viewer, "<b>ours</b>", is_shared="on")
    assert "&lt;b&gt;ours&lt;/b&gt;, shared by viewer" in operator.get(LIST).text
    assert operator.get(f"{VIEWS}{view.pk}/open/").headers["Location"] == f"{LIST}?state=failed"
    page = operator.get(f"{VIEWS}{view.pk}/change/").text
    assert f"http://testserver{VIEWS}{view.pk}/open/" in page
    assert 'disabled title="Only viewer, who saved it, can change it."' in page
    for place, told in (("edit", {"name": "theirs"}), ("remove", {})):
        operator.post(f"{VIEWS}{view.pk}/{place}/", {"_form_submitted": "True", **told})
        assert SavedView.objects.get().name == "<b>ours</b>"
    assert "ergon-button-danger" in viewer.get(f"{VIEWS}{view.pk}/remove/").text
    renamed = {"_form_submitted": "True", "name": "ours", "is_shared": "on"}
    assert viewer.post(f"{VIEWS}{view.pk}/edit/", renamed).status_code == 302
    assert viewer.get(f"{VIEWS}{view.pk}/edit/").text.count('value="ours"') == 1
    assert viewer.post(f"{VIEWS}{view.pk}/remove/", {"_form_submitted": "True"}).headers["Location"] == LIST
    assert not SavedView.objects.exists()
    assert actions() == [("viewer", f"saved_view.{act}") for act in ("create", "change", "delete")]
    assert AuditEntry.objects.get(action="saved_view.change").before["name"] == "<b>ours</b>"  # type: ignore[index]


def test_views_have_limits(others: tuple[Client, Client]) -> None:
    viewer, _ = others
    save(viewer, "one")
    for told, said in (
        ({"name": "one"}, "You have a view of this list with this name."),
        ({"name": ""}, "This field is required."),
        ({"name": "a" * 61}, "at most 60 characters"),
        ({"name": "two", "query": ""}, "A view needs a filter or a search."),
        ({"name": "two", "query": "q=" + "a" * 2000}, "longer than 2,000 characters"),
    ):
        answer = viewer.post(f"{VIEWS}add/", {"place": PLACE, "query": "state=failed", **told})
        assert said in unescape(answer.text), told
    # Of lists that there are, and that the person may see.
    for place in ("access_apiclient", "access_auditentry", "nowhere", "//example.com"):
        told = {"place": place, "query": "state=failed", "name": "two"}
        assert viewer.post(f"{VIEWS}add/", told).status_code == 403
    person, another = User.objects.get(username="viewer"), User.objects.get(username="operator")
    made = [SavedView(owner=person, place=PLACE, name=f"n{number}", query="a=1") for number in range(MOST_OF_A_PERSON)]
    SavedView.objects.bulk_create(made)
    with pytest.raises(ViewRefusedError, match="you have 50 saved views already"):
        saved_views.save(person, PLACE, "more", "a=1", is_shared=False)
    shared = [
        SavedView(owner=another, place=PLACE, name=f"s{n}", query="a=1", is_shared=True) for n in range(MOST_SHARED)
    ]
    SavedView.objects.bulk_create(shared)
    with pytest.raises(ViewRefusedError, match="100 views of this list are shared already"):
        saved_views.change(person, made[0].pk or SavedView.objects.get(name="n0").pk, name="n0", is_shared=True)
    with pytest.raises(ViewRefusedError, match="the view is gone"):
        saved_views.delete(person, 0)


def test_a_view_of_a_list_that_its_reader_may_not_see_leads_nowhere(
    others: tuple[Client, Client], browse: Client
) -> None:
    view = save(browse, "new ones", place="access_apiclient", query="state=enabled", is_shared="on")
    viewer, _ = others
    assert viewer.get(f"{VIEWS}{view.pk}/open/").status_code == 404
    assert browse.get(f"{VIEWS}{view.pk}/open/").status_code == 302
