"""Forms write what their reader has changed, and nothing back that others have changed while they were open."""

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from engines import pipelines
from engines.models import Pipeline
from engines.pipelines import Plan
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.models import ApiClient, AuditEntry
from facts import provisioning
from facts.models import Boundary
from facts.provisioning import Allowance
from providers import calls
from providers.core.exchange import Who
from providers.models import Gate
from tests.console import records
from tests.facts.drafts import OFFICE, PLANT, make_boundary

pytestmark = [pytest.mark.django_db, pytest.mark.once]

REASON = {"reason": "faster"}
CERTIFICATE = "CN=press"
WHO = Who("acme", "rank", "rank_snapshot")


class Sent(HTMLParser):
    """What a browser sends of the forms of a page as they are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self._area = self._select = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        name, value = told.get("name") or "", told.get("value") or ""
        is_box = told.get("type") == "checkbox"
        if tag == "input" and name and ("checked" in told or not is_box):
            self.fields.setdefault(name, []).append(value or ("on" if is_box else ""))
        elif tag == "textarea":
            self._area, self.fields[name] = name, [""]
        elif tag == "select":
            self._select = name
        elif tag == "option" and "selected" in told:
            self.fields[self._select] = [value]

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # As HTML says: the line break behind the tag is none, and lines are sent as the network has them.
            self.fields[self._area] = [self.fields[self._area][0].removeprefix("\n").replace("\n", "\r\n")]
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area][0] += data


def opened(browse: Client, page: str) -> dict[str, Any]:
    return dict(Sent(records.read(browse, page)).fields)


@pytest.fixture
def pipeline() -> Pipeline:
    return pipelines.create("orders", Plan(task="orders.book", redacted=["customer.name", "customer.iban"]), by="ada")


def edit(row: Pipeline) -> str:
    return f"/admin/engines/pipeline/{row.pk}/edit/"


def test_a_pipelines_form_keeps_what_others_have_hidden_meanwhile(browse: Client, pipeline: Pipeline) -> None:
    form = opened(browse, edit(pipeline))
    pipelines.amend("orders", Plan(redacted=["card.number"], keep_failed_days=30), by="eva")
    assert browse.post(edit(pipeline), {**form, **REASON, "priority": "5"}).status_code == 302
    pipeline.refresh_from_db()
    assert (pipeline.redacted, pipeline.keep_failed_days, pipeline.priority) == (["card.number"], 30, 5)


def test_what_both_have_changed_is_told_and_saved_if_it_is_sent_again(browse: Client, pipeline: Pipeline) -> None:
    form = opened(browse, edit(pipeline)) | REASON | {"redacted": ["customer.name\r\ncustomer.iban\r\norder.note"]}
    pipelines.amend("orders", Plan(redacted=["customer.name", "card.number"], is_enabled=False), by="eva")
    page = browse.post(edit(pipeline), form).content.decode()
    told = page.split('id="id_redacted_error"')[1].split("</ul>")[0]
    assert (
        "Somebody has changed this meanwhile: it is customer.name, card.number now. Save again to replace it." in told
    )
    assert Pipeline.objects.get().redacted == ["customer.name", "card.number"]
    assert browse.post(edit(pipeline), Sent(page).fields).status_code == 302
    pipeline.refresh_from_db()
    assert (pipeline.redacted[-1], pipeline.is_enabled) == ("order.note", False)


def test_what_both_have_changed_alike_is_no_quarrel(browse: Client, pipeline: Pipeline) -> None:
    form = opened(browse, edit(pipeline)) | REASON | {"priority": ["5"]}
    pipelines.amend("orders", Plan(priority=5), by="eva")
    assert browse.post(edit(pipeline), form).status_code == 302


@pytest.mark.parametrize("opened_with", ["", "{", "[]", "{}", "7", '"\\u0000"', "\x00", "9" * 5000])
def test_a_form_that_does_not_tell_what_it_was_opened_with_changes_the_row_as_it_is(
    browse: Client, pipeline: Pipeline, opened_with: str
) -> None:
    form = opened(browse, edit(pipeline)) | REASON | {"priority": ["5"], "opened": [opened_with]}
    assert browse.post(edit(pipeline), form).status_code == 302
    assert Pipeline.objects.get().priority == 5


@pytest.fixture
def press() -> ApiClient:
    grant = Grant(scopes=["transactions:read", "platform"], buckets=["b", "a"], rate=2)
    return clients.create("press", grant, certificate=CERTIFICATE, by="ada").client


def grants(row: ApiClient) -> str:
    return f"/admin/access/apiclient/{row.pk}/change/"


def test_a_clients_form_gives_back_no_scope_that_was_revoked_meanwhile(browse: Client, press: ApiClient) -> None:
    form = opened(browse, grants(press))
    clients.amend(press.pk, {"scopes": ["transactions:read"]}, by="eva")
    clients.certify(press.pk, None, by="eva")
    assert browse.post(grants(press), {**form, "rate": "5"}).status_code == 302
    press.refresh_from_db()
    assert (press.scopes, press.rate, press.certificate) == (["transactions:read"], 5.0, None)
    assert press.buckets == ["b", "a"]


def test_a_scope_is_given_besides_one_that_was_revoked_meanwhile_only_on_purpose(
    browse: Client, press: ApiClient
) -> None:
    form = opened(browse, grants(press))
    clients.amend(press.pk, {"scopes": ["transactions:read"]}, by="eva")
    form["scopes"] = [*form["scopes"], "metrics:read"]
    page = browse.post(grants(press), form).content.decode()
    assert "Somebody has changed this meanwhile: it is transactions:read now." in page
    press.refresh_from_db()
    assert press.scopes == ["transactions:read"]


def test_a_clients_form_that_is_saved_as_it_is_changes_nothing(browse: Client, press: ApiClient) -> None:
    assert browse.post(grants(press), opened(browse, grants(press))).status_code == 302
    assert not AuditEntry.objects.filter(action__in=["api_client.amend", "api_client.certify"]).exists()


def test_limits_keep_what_others_have_set_meanwhile(browse: Client) -> None:
    boundary = make_boundary()
    page = f"/admin/facts/boundary/{boundary.pk}/limit/"
    form = opened(browse, page)
    provisioning.limit(PLANT, OFFICE, Allowance(row_ceiling=10), by="eva", reason="small disk")
    assert browse.post(page, {**form, **REASON, "keep_days": "7"}).status_code == 302
    row = Boundary.objects.get()
    assert (row.row_ceiling, row.keep_days) == (10, 7)


def test_a_quota_keeps_what_others_have_set_meanwhile(browse: Client) -> None:
    calls.set_quota(WHO, limit=100, window=86_400, by="ada")
    page = f"/admin/providers/gate/{Gate.objects.get().pk}/quota/"
    form = opened(browse, page)
    calls.set_quota(WHO, limit=50, window=86_400, by="eva")
    assert browse.post(page, {**form, **REASON, "window": "3600"}).status_code == 302
    gate = Gate.objects.get()
    assert (gate.quota_limit, gate.quota_window) == (50, 3600)


def test_a_quota_that_was_removed_meanwhile_comes_back_only_on_purpose(browse: Client) -> None:
    calls.set_quota(WHO, limit=100, window=3_600, by="ada")
    page = f"/admin/providers/gate/{Gate.objects.get().pk}/quota/"
    form = opened(browse, page) | REASON | {"limit": ["200"]}
    calls.drop_quota(WHO, by="eva")
    told = browse.post(page, form).content.decode()
    assert "it is empty now. Save again to replace it." in told
    assert not Gate.objects.get().is_limited
    assert browse.post(page, Sent(told).fields).status_code == 302
    gate = Gate.objects.get()
    assert (gate.quota_limit, gate.quota_window) == (200, 3_600)


def test_a_users_form_gives_nothing_back_that_was_taken_meanwhile(browse: Client, hire: Callable[[str], User]) -> None:
    person = hire("operator")
    page = f"/admin/auth/user/{person.pk}/change/"
    form = opened(browse, page)
    person.groups.clear()
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert browse.post(page, {**form, "first_name": "Eva"}).status_code == 302
    person.refresh_from_db()
    assert (person.first_name, person.is_active, list(person.groups.all())) == ("Eva", False, [])


def test_a_users_form_says_what_is_wrong_whatever_it_says_it_was_opened_with(
    browse: Client, administrator: User
) -> None:
    page = f"/admin/auth/user/{administrator.pk}/change/"
    answer = browse.post(page, {**opened(browse, page), "username": "\x00", "opened": "\x00"})
    assert answer.status_code == 200
    assert answer.content.decode().count("Null characters are not allowed.") == 1
