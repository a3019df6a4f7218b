"""Pages of the shared ground: what they show, what their buttons do, what they cost."""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ergon_site.access import api_identity, audit, clients
from ergon_site.access.clients import Grant
from ergon_site.access.models import ApiClient, ApiToken, AuditEntry
from facts import provisioning

pytestmark = [pytest.mark.django_db, pytest.mark.once]

QUERY_BUDGET = 12
DIALOG = {"_form_submitted": "on", "reason": "token leaked"}


def test_a_healthy_dashboard_is_calm(browse: Client) -> None:
    page = browse.get("/admin/").content.decode()
    assert "Nothing needs attention." in page
    assert "No activity yet" in page


@pytest.mark.parametrize(
    ("asked", "led_to"), [("", "/admin/"), ("?next=/admin/engines/worker/", "/admin/engines/worker/")]
)
def test_logging_in_leads_to_the_console_or_to_where_one_wanted(
    client: Client, administrator: User, asked: str, led_to: str
) -> None:
    person = {"username": "ada", "password": "correct horse"}
    answer = client.post(f"/admin/login/{asked}", person)
    assert (answer.status_code, answer["Location"]) == (302, led_to)
    assert client.get(answer["Location"]).status_code == 200


def test_what_needs_a_person_is_named_and_linked(browse: Client) -> None:
    issued = clients.create("press", Grant(scopes=["platform"]), by="ada", lifetime=timedelta(days=3))
    page = browse.get("/admin/live/").content.decode()
    assert "1 item needs attention" in page
    assert "The last token of press expires soon" in page
    assert f"/admin/access/apiclient/{issued.client.pk}/change/" in page


def test_people_who_wait_for_a_role_need_a_person(browse: Client, django_user_model: type) -> None:
    django_user_model.objects.create_user("bob", is_staff=True)  # type: ignore[attr-defined]
    assert "bob can log in but has no role" in browse.get("/admin/").content.decode()


def test_a_token_is_shown_once_after_a_client_is_made(browse: Client) -> None:
    for name in ("Plant A", "Plant B"):
        provisioning.create_zone(name, by="ada")
    form = {"name": "press", "zones": "Plant A\nPlant B\n", "scopes": ["facts:append"], "lifetime": "30"}
    page = browse.post("/admin/access/apiclient/add/", form).content.decode()
    token = page.split('id="token" tabindex="0">')[1].split("<")[0]
    made = api_identity.identify(token)
    assert made is not None
    assert sorted(made.zones) == ["Plant A", "Plant B"]
    assert list(made.scopes) == ["facts:append"]
    row = ApiToken.objects.select_related("client").get()
    assert row.expires_at is not None
    assert row.client.created_by == "ada"
    assert token not in browse.get(f"/admin/access/apiclient/{made.client_id}/change/").content.decode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tenants": "me"}, "Each line must be a UUID."),
        ({"scopes": ["everything"]}, "Select a valid choice"),
        ({"name": "taken"}, "already exists"),
        ({"lifetime": "0"}, "greater than or equal to 1"),
        ({"name": ""}, "This field is required."),
        ({"rate": "-1"}, "The rate must be a number above 0"),
        ({"rate": "1e-320"}, "The rate must be a number above 0"),
        ({"name": "a\u200bb"}, "1 to 100 printable characters"),
        ({"zones": "Plant B"}, "There is no zone &#x27;Plant B&#x27;; there are: "),
        ({"target_zones": "Plant A\nPlant B"}, "There is no zone &#x27;Plant B&#x27;; there are: "),
        ({"zones": "x" * 257}, "1 to 256 printable characters"),
        ({"lifetime": "99999"}, "less than or equal to 36500"),
    ],
)
def test_a_wrong_form_says_what_is_wrong_and_makes_nothing(browse: Client, change: dict[str, str], words: str) -> None:
    clients.create("taken", Grant(scopes=["platform"]), by="ada")
    provisioning.create_zone("Plant A", by="ada")
    page = browse.post("/admin/access/apiclient/add/", {"name": "press", **change}).content.decode()
    assert words in page
    assert ApiClient.objects.count() == 1


def test_a_clients_grant_is_changed_by_the_verb(browse: Client) -> None:
    client = clients.create("press", Grant(scopes=["platform"]), by="ada").client
    form = {"scopes": ["policies:read"], "zones": "", "rate": "5", "tokens-TOTAL_FORMS": 0, "tokens-INITIAL_FORMS": 0}
    assert browse.post(f"/admin/access/apiclient/{client.pk}/change/", form).status_code == 302
    client.refresh_from_db()
    assert (client.name, client.scopes, client.rate) == ("press", ["policies:read"], 5.0)
    assert AuditEntry.objects.filter(action="api_client.amend", actor="ada").count() == 1


def test_a_client_without_a_scope_is_refused_at_the_field(browse: Client) -> None:
    page = browse.post("/admin/access/apiclient/add/", {"name": "press"}).content.decode()
    assert "A client needs at least one scope" in page
    assert not ApiClient.objects.exists()
    client = clients.create("press", Grant(scopes=["platform"]), by="ada").client
    form = {"scopes": [], "tokens-TOTAL_FORMS": 0, "tokens-INITIAL_FORMS": 0}
    page = browse.post(f"/admin/access/apiclient/{client.pk}/change/", form).content.decode()
    assert "A client needs at least one scope" in page


@pytest.mark.parametrize(
    ("given", "days"),
    [({}, 90), ({"lifetime": ""}, 90), ({"lifetime": "9"}, 9), ({"lifetime": "9", "is_endless": "on"}, None)],
)
def test_a_token_lives_for_a_year_unless_somebody_chooses_otherwise(
    browse: Client, given: dict[str, str], days: int | None
) -> None:
    assert 'name="lifetime" value="90"' in browse.get("/admin/access/apiclient/add/").content.decode()
    browse.post("/admin/access/apiclient/add/", {"name": "press", "scopes": ["platform"], **given})
    client = ApiClient.objects.get()
    browse.post(f"/admin/access/apiclient/{client.pk}/rotate/", {"overlap": "600", **given})
    newest = client.tokens.latest("pk")
    assert client.tokens.count() == 2
    lives = newest.expires_at and round((newest.expires_at - newest.created_at) / timedelta(days=1))
    assert lives == days


def test_a_new_token_is_issued_only_after_the_form_is_sent(browse: Client) -> None:
    client = clients.create("press", Grant(scopes=["platform"]), by="ada").client
    address = f"/admin/access/apiclient/{client.pk}/rotate/"
    assert "Overlap in minutes" in browse.get(address).content.decode()
    assert client.tokens.count() == 1
    assert "Copy the token now" in browse.post(address, {"overlap": "0"}).content.decode()
    assert client.tokens.count() == 2


def test_disabling_asks_why_and_only_then_disables(browse: Client) -> None:
    client = clients.create("press", Grant(scopes=["platform"]), by="ada").client
    address = f"/admin/access/apiclient/{client.pk}/disable/"
    assert "Recorded in the audit log" in browse.get(address).content.decode()
    browse.post(address, {**DIALOG, "reason": ""})
    assert ApiClient.objects.get().disabled_at is None
    assert browse.post(address, DIALOG).headers["HX-Redirect"] == f"/admin/access/apiclient/{client.pk}/change/"
    assert ApiClient.objects.get().disabled_at is not None
    assert AuditEntry.objects.get(action="api_client.disable").reason == "token leaked"
    assert browse.post(address, DIALOG).status_code == 403
    browse.post(f"/admin/access/apiclient/{client.pk}/enable/", DIALOG)
    assert ApiClient.objects.get().disabled_at is None


def test_the_audit_log_is_found_by_beginnings_and_shows_before_and_after(browse: Client) -> None:
    entry = audit.record(actor="bob", action="thing.change", target="thing 1", before={"a": 1}, after={"a": 2})
    audit.record(actor="evelyn", action="thing.drop", target="other")
    page = browse.get("/admin/access/auditentry/?q=thing").content.decode()
    assert "bob" in page
    assert "evelyn" in page
    assert "evelyn" not in browse.get("/admin/access/auditentry/?q=bob").content.decode()
    assert "before" in browse.get(f"/admin/access/auditentry/{entry.pk}/change/").content.decode().lower()


def test_the_audit_log_has_no_way_to_write(browse: Client) -> None:
    entry = audit.record(actor="bob", action="x", target="y")
    for address in ("add/", f"{entry.pk}/delete/"):
        assert browse.post(f"/admin/access/auditentry/{address}", {"post": "yes"}).status_code == 403
    assert browse.post(f"/admin/access/auditentry/{entry.pk}/change/", {"actor": "eve"}).status_code == 403


@pytest.mark.parametrize("statement", ["UPDATE access_auditentry SET actor = 'eve'", "DELETE FROM access_auditentry"])
def test_the_database_itself_keeps_the_audit_log_as_it_is(statement: str) -> None:
    audit.record(actor="bob", action="x", target="y")
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert AuditEntry.objects.get().actor == "bob"


def test_a_filtered_list_is_exported_as_csv_and_json(browse: Client) -> None:
    for actor in ("bob", "eve", "bob"):
        audit.record(actor=actor, action="x", target="=HYPERLINK()", after={"n": 1})
    body = b"".join(browse.get("/admin/access/auditentry/export.csv?q=bob")).decode()
    rows = list(csv.DictReader(io.StringIO(body)))
    assert [row["actor"] for row in rows] == ["bob", "bob"]
    assert rows[0]["target"] == "'=HYPERLINK()"
    assert json.loads(rows[0]["after"]) == {"n": 1}
    entries = json.loads(b"".join(browse.get("/admin/access/auditentry/export.json?q=eve")))
    assert [entry["after"] for entry in entries] == [{"n": 1}]
    assert json.loads(b"".join(browse.get("/admin/access/auditentry/export.json?q=nobody"))) == []
    assert browse.get("/admin/access/auditentry/export.xml").status_code == 404


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_a_cell_that_a_spreadsheet_would_run_is_guarded(browse: Client, start: str) -> None:
    audit.record(actor="bob", action="x", target=f"{start}HYPERLINK()")
    body = b"".join(browse.get("/admin/access/auditentry/export.csv")).decode()
    assert f"'{start}HYPERLINK()" in body


@pytest.mark.parametrize(
    "page",
    [
        "/admin/",
        "/admin/live/",
        "/admin/access/apiclient/",
        "/admin/access/auditentry/",
        "/admin/auth/user/",
        "/admin/access/role/",
    ],
)
def test_a_page_stays_within_its_query_budget_however_many_rows(browse: Client, page: str) -> None:
    for number in range(60):
        clients.create(f"client {number}", Grant(scopes=["platform"]), by="ada", lifetime=timedelta(days=1))
    with CaptureQueriesContext(connection) as queries:
        assert browse.get(page).status_code == 200
    assert len(queries) <= QUERY_BUDGET


@pytest.mark.once
def test_no_list_offers_to_show_all_rows_at_once(browse: Client) -> None:
    for number in range(120):
        clients.create(f"client {number}", Grant(scopes=["platform"]), by="ada")
    page = browse.get("/admin/access/apiclient/").content.decode()
    assert "120" in page
    assert "Show all" not in page


def test_a_page_lists_the_models_of_the_apps_only_where_it_shows_them(
    browse: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str | None] = []

    def build(_site: AdminSite, _request: HttpRequest, label: str | None) -> dict[str, Any]:
        listed.append(label)
        return {}

    monkeypatch.setattr(AdminSite, "_build_app_dict", build)
    assert browse.get("/admin/engines/worker/").status_code == 200
    assert listed == []
    assert browse.get("/admin/engines/").status_code == 404
    assert listed == ["engines"]


def test_no_page_lets_the_browser_load_from_elsewhere(browse: Client) -> None:
    policy = browse.get("/admin/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("page", ["/admin/", "/admin/login/", "/admin/engines/pipeline/", "/admin/auth/user/"])
def test_no_transaction_of_a_projects_requests_surrounds_a_page(
    browse: Client, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)  # noqa: FBT003
    with CaptureQueriesContext(connection) as queries:
        assert browse.get(page).status_code in {200, 302}
    assert not [query["sql"] for query in queries if query["sql"].startswith("BEGIN")]
