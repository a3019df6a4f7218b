"""Certificates that a proxy has verified: whom it may speak of, and who is believed."""

import json
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from ergon_site.access import api_identity, clients
from ergon_site.access.api import schema, throttling
from ergon_site.access.clients import CertificateTakenError, Grant
from ergon_site.access.core.terms import UnusableIdentityError
from ergon_site.access.models import ApiClient, AuditEntry
from tests.api.api_clients import problem
from tests.factories import ApiClientFactory
from tests.processes import LIMIT, eventually, serve

pytestmark = pytest.mark.django_db

PRESS = "CN=press,O=Plant A"
PROXY = "10.1.2.3"


@pytest.fixture(autouse=True)
def _behind_a_proxy(settings: Settings) -> Iterator[None]:
    settings.ERGON_CERTIFICATE_HEADER = "X-Client-Certificate"
    settings.ERGON_TRUSTED_PROXIES = (ip_network("10.1.0.0/16"),)
    api_identity.forget()
    throttling.forget()
    yield
    api_identity.forget()


def make(**options: Any) -> ApiClient:
    options = {"certificate": PRESS, "by": "ada", "grant": Grant(zones=["Plant A"]), **options}
    return clients.create("press", **options).client


def ask(told: str | None = PRESS, *, at: str = PROXY, **headers: str) -> Any:
    if told is not None:
        headers["X-Client-Certificate"] = told
    return Client(REMOTE_ADDR=at).get("/api/v1/client", headers=headers)


def test_a_client_is_known_by_the_certificate_that_a_trusted_proxy_tells() -> None:
    make(lifetime=timedelta(days=3))
    seen = ask().json()
    assert (seen["name"], seen["zones"], seen["certificate"]) == ("press", ["Plant A"], PRESS)
    assert seen["scopes"] == ["facts:append", "facts:fetch", "objects:put", "objects:get"]
    assert seen["token_prefix"] is None
    assert seen["expires_at"] > timezone.now().isoformat()


@pytest.mark.parametrize("at", ["10.2.0.1", "127.0.0.1", "", "unix:", "2001:db8::1"])
def test_the_header_of_anybody_else_is_ignored(at: str) -> None:
    make()
    told = problem(ask(at=at), 401, "unauthenticated")
    assert told == problem(ask(None, at=at), 401, "unauthenticated")
    forwarded = ask(at=at, **{"X-Forwarded-For": PROXY, "X-Real-IP": PROXY, "Forwarded": f"for={PROXY}"})
    assert forwarded.status_code == 401


def test_without_the_setting_no_header_counts(settings: Settings) -> None:
    make()
    settings.ERGON_CERTIFICATE_HEADER = ""
    assert ask().status_code == 401


@pytest.mark.parametrize("told", [None, "", "  "])
def test_an_empty_header_is_none(told: str | None) -> None:
    make()
    ApiClientFactory.create()
    assert problem(ask(told), 401, "unauthenticated") == problem(ask(None), 401, "unauthenticated")


@pytest.mark.parametrize(
    "told",
    [
        "CN=stranger",
        f"{PRESS},CN=stranger",
        f"CN=stranger,{PRESS}",
        f"{PRESS},{PRESS}",
        f"{PRESS}, {PRESS}",
        PRESS.lower(),
        PRESS.replace(",", ", "),
        "CN=press",
        "O=Plant A,CN=press",
        "CN=press,O=Plant%20A",
        "x" * 5000,
        "CN=Jürgen",
        "CN=a\x00b",
    ],
)
def test_only_the_whole_identity_letter_by_letter_counts(told: str) -> None:
    make()
    assert problem(ask(told), 401, "unauthenticated") == problem(ask("CN=nobody"), 401, "unauthenticated")


def test_a_client_that_may_not_come_in_is_answered_like_an_unknown_one() -> None:
    unknown = ask("CN=nobody")
    disabled = make()
    clients.disable(disabled.pk, by="ada", reason="stolen")
    expired = clients.create(
        "late", Grant(scopes=["platform"]), by="ada", certificate="CN=late", lifetime=timedelta(microseconds=1)
    )
    assert expired.client.certificate_expires_at is not None
    for told in (PRESS, "CN=late"):
        answer = ask(told)
        assert answer.json() == unknown.json()
        assert answer.headers["WWW-Authenticate"] == unknown.headers["WWW-Authenticate"] == 'Bearer realm="ergon"'


def test_a_token_goes_before_a_certificate() -> None:
    make()
    other = clients.create("other", Grant(scopes=["platform"]), by="ada").token.text
    assert ask(Authorization=f"Bearer {other}").json()["name"] == "other"
    assert ask(Authorization="Bearer ergon_wrong_token").status_code == 401
    assert ask(Authorization="Basic eDp5").json()["name"] == "press"


def test_an_identity_is_no_token_even_while_it_is_remembered() -> None:
    make()
    assert ask().status_code == 200
    assert ask(None, Authorization=f"Bearer {PRESS}").status_code == 401
    token = clients.rotate(ApiClient.objects.get().pk, by="ada").token.text
    assert ask(None, Authorization=f"Bearer {token}").status_code == 200
    assert ask(token).status_code == 401


def test_a_certificate_grants_what_a_token_does() -> None:
    make(grant=Grant(scopes=["policies:read"], rate=0.01))
    proxied = Client(REMOTE_ADDR=PROXY, headers={"X-Client-Certificate": PRESS})
    problem(proxied.get("/api/v1/audit-entries"), 403, "permission_denied")
    assert proxied.get("/api/v1/policies").status_code == 200
    problem(proxied.get("/api/v1/policies"), 429, "throttled")


def test_wrong_certificates_are_slowed_down_like_wrong_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    # At the real rate, how many calls it takes would depend on how fast this machine is.
    monkeypatch.setattr(throttling, "WRONG_TOKENS_PER_SECOND", 0.01)
    assert [ask("CN=nobody").status_code for _ in range(3)] == [401, 429, 429]


def test_who_was_found_is_remembered_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_identity, "REMEMBERED_FOR", 3600.0)  # a busy machine may take more than a second
    make()
    assert ask().status_code == 200
    with CaptureQueriesContext(connection) as queries:
        assert api_identity.recognise(PRESS) is not None
    assert len(queries) == 0
    api_identity.forget()
    monkeypatch.setattr(api_identity, "REMEMBERED_FOR", 0.1)
    assert ask().status_code == 200
    ApiClient.objects.update(disabled_at=timezone.now())
    eventually(lambda: ask().status_code == 401, "the certificate is refused")


def test_its_use_is_noted_but_not_at_every_call() -> None:
    client = make()
    assert clients.with_last_use(ApiClient.objects.all()).get().last_used_at is None  # type: ignore[attr-defined]
    ask()
    client.refresh_from_db()
    noted = client.certificate_used_at
    assert noted is not None
    api_identity.forget()
    ask()
    client.refresh_from_db()
    assert client.certificate_used_at == noted
    assert clients.with_last_use(ApiClient.objects.all()).get().last_used_at == noted  # type: ignore[attr-defined]


def test_a_change_of_the_certificate_counts_at_once_and_is_told() -> None:
    client = make(lifetime=None)
    assert ask().status_code == 200
    assert clients.certify(client.pk, "CN=press 2", by="bob")
    assert not clients.certify(client.pk, "CN=press 2", by="bob")
    assert (ask().status_code, ask("CN=press 2").status_code) == (401, 200)
    assert clients.certify(client.pk, None, by="bob")
    assert ask("CN=press 2").status_code == 401
    first, last = AuditEntry.objects.filter(action="api_client.certify", actor="bob").order_by("id")
    assert first.before == {"certificate": PRESS, "certificate_expires_at": None}
    assert last.after == {"certificate": None, "certificate_expires_at": None}


def test_a_certificate_names_one_client() -> None:
    make()
    other = clients.create("other", Grant(scopes=["platform"]), by="ada").client
    with pytest.raises(CertificateTakenError, match="belongs to the API client 'press' already"):
        clients.certify(other.pk, PRESS, by="ada")
    with pytest.raises(CertificateTakenError, match="'press'"):
        clients.create("third", Grant(scopes=["platform"]), by="ada", certificate=PRESS)
    with pytest.raises(UnusableIdentityError):
        clients.certify(other.pk, "CN=Jürgen", by="ada")


def test_a_client_whose_certificate_goes_on_is_not_about_to_be_refused(settings: Settings) -> None:
    soon = timezone.now() + timedelta(days=3)
    for name, until in (("soon", soon), ("lasting", None)):
        client = clients.create(name, Grant(scopes=["platform"]), by="ada", lifetime=timedelta(days=3)).client
        clients.certify(client.pk, f"CN={name}", by="ada", until=until)
    assert [client.name for client in clients.expiring(timedelta(days=14))] == ["soon"]
    settings.ERGON_CERTIFICATE_HEADER = ""
    assert [client.name for client in clients.expiring(timedelta(days=14))] == ["lasting", "soon"]


def test_the_command_takes_a_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("create_api_client", "press", "--scope", "platform", "--certificate", PRESS, "--expires", "30")
    client = ApiClient.objects.get()
    assert client.certificate_expires_at is not None
    assert client.certificate_expires_at > timezone.now() + timedelta(days=29)
    assert ask().status_code == 200
    for arguments, words in (
        (["other", "--scope", "platform", "--certificate", PRESS], "belongs to the API client 'press' already"),
        (["other", "--scope", "platform", "--certificate", "CN=Jürgen"], "printable ASCII"),
        (["press", "--rotate", "--certificate", "CN=x"], "--rotate changes the token alone"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("create_api_client", *arguments)
    capsys.readouterr()
    call_command("api_client", "--json", "list")
    assert json.loads(capsys.readouterr().out)["last_used_at"] is not None


def test_the_console_sets_and_changes_a_certificate(browse: Client) -> None:
    page = "/admin/access/apiclient"
    browse.post(f"{page}/add/", {"name": "press", "scopes": ["platform"], "certificate": PRESS, "lifetime": "30"})
    client = ApiClient.objects.get()
    assert client.certificate_expires_at is not None
    assert ask().status_code == 200
    counts = {"scopes": ["platform"], "tokens-TOTAL_FORMS": 0, "tokens-INITIAL_FORMS": 0}
    wrong = browse.post(f"{page}/{client.pk}/change/", {"certificate": "CN=Jürgen", **counts})
    assert "printable ASCII characters" in wrong.content.decode()
    until = {"certificate_expires_at_0": "2999-01-01", "certificate_expires_at_1": "00:00:00"}
    changed = browse.post(f"{page}/{client.pk}/change/", {"certificate": "CN=new", **until, **counts})
    assert changed.status_code == 302
    assert (ask().status_code, ask("CN=new").json()["expires_at"]) == (401, "2999-01-01T00:00:00Z")
    taken = browse.post(f"{page}/add/", {"name": "other", "certificate": "CN=new"}).content.decode()
    assert "already exists" in taken
    assert browse.post(f"{page}/{client.pk}/change/", {"certificate": "", **counts}).status_code == 302
    assert ApiClient.objects.filter(certificate=None, certificate_expires_at=None).exists()


def test_the_schema_names_certificates_where_they_count(client: Client, settings: Settings) -> None:
    def ways() -> list[dict[str, list[str]]]:
        schema.forget()
        document = client.get("/api/schema/?format=json").json()
        found: list[dict[str, list[str]]] = document["paths"]["/api/v1/client"]["get"]["security"]
        return found

    assert ways() == [{"token": []}, {"certificate": []}]
    settings.ERGON_CERTIFICATE_HEADER = ""
    assert ways() == [{"token": []}]
    schema.forget()


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("proxies", "status"), [("127.0.0.1,::1", 200), ("10.0.0.0/8", 401)])
def test_a_server_believes_the_proxies_that_it_was_told_of(proxies: str, status: int) -> None:
    make()
    with serve(ERGON_CERTIFICATE_HEADER="ErgonCertificate", ERGON_TRUSTED_PROXIES=proxies) as site:
        for name in ("ErgonCertificate", "ergoncertificate"):
            assert httpx.get(f"{site.url}/api/v1/client", headers={name: PRESS}, timeout=LIMIT).status_code == status
        for wrong in ("CN=stranger", "", f"{PRESS}, {PRESS}"):
            answer = httpx.get(f"{site.url}/api/v1/client", headers={"ErgonCertificate": wrong}, timeout=LIMIT)
            assert answer.status_code == 401
        # A name without a hyphen has no second spelling that a caller could send past the proxy.
        assert (
            httpx.get(f"{site.url}/api/v1/client", headers={"Ergon_Certificate": PRESS}, timeout=LIMIT).status_code
            == 401
        )
