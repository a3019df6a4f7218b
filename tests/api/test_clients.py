"""Tokens: who is let in, and until when."""

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from ergon_site.access import clients
from ergon_site.access.clients import Grant, NameTakenError
from ergon_site.access.core.terms import UnusableTermError
from ergon_site.access.models import ApiClient, ApiToken, AuditEntry
from tests.processes import eventually, manage

pytestmark = pytest.mark.django_db


def call(client: Client, token: str) -> int:
    return client.get("/api/v1/client", headers={"Authorization": f"Bearer {token}"}).status_code


def test_a_client_sees_what_it_may_do(client: Client) -> None:
    grant = Grant(zones=["Plant A"], target_zones=["HQ"])
    token = clients.create("press", grant, by="ada", lifetime=timedelta(days=1)).token
    answer = client.get("/api/v1/client", headers={"Authorization": f"bearer {token.text}"})
    seen = answer.json()
    assert answer.status_code == 200
    assert seen["name"] == "press"
    assert seen["scopes"] == ["facts:append", "facts:fetch", "objects:put", "objects:get"]
    assert (seen["zones"], seen["target_zones"], seen["token_prefix"]) == (["Plant A"], ["HQ"], token.prefix)
    assert seen["expires_at"] > timezone.now().isoformat()


def test_only_a_digest_of_the_token_is_kept() -> None:
    token = clients.create("press", Grant(scopes=["platform"]), by="ada").token
    row = ApiToken.objects.values().get()
    assert token.text not in str(row)
    assert row["digest"] == token.digest


def test_an_altered_token_is_refused(client: Client) -> None:
    text = clients.create("press", Grant(scopes=["platform"]), by="ada").token.text
    assert call(client, text) == 200
    assert call(client, text[:-1] + ("A" if text[-1] != "A" else "B")) == 401
    assert call(client, "ergon_unknown1_secret") == 401
    assert call(client, "ergon_\xe4_x") == 401


def test_an_expired_token_is_refused(client: Client) -> None:
    text = clients.create("press", Grant(scopes=["platform"]), by="ada", lifetime=timedelta(microseconds=1)).token.text
    assert call(client, text) == 401


def test_after_a_rotation_both_tokens_work_until_the_overlap_is_over(client: Client) -> None:
    first = clients.create("press", Grant(scopes=["platform"]), by="ada")
    second = clients.rotate(first.client.pk, by="ada", overlap=timedelta(hours=1))
    assert (call(client, first.token.text), call(client, second.token.text)) == (200, 200)
    third = clients.rotate(first.client.pk, by="ada", overlap=timedelta(0))
    assert (call(client, first.token.text), call(client, second.token.text)) == (401, 401)
    assert call(client, third.token.text) == 200


def test_a_rotation_never_prolongs_an_earlier_token() -> None:
    issued = clients.create("press", Grant(scopes=["platform"]), by="ada", lifetime=timedelta(minutes=1))
    ends_at = ApiToken.objects.get().expires_at
    clients.rotate(issued.client.pk, by="ada", overlap=timedelta(hours=1))
    assert ApiToken.objects.get(prefix=issued.token.prefix).expires_at == ends_at


def test_what_another_process_changed_counts_within_a_second(client: Client) -> None:
    issued = clients.create("press", Grant(scopes=["platform"]), by="ada")
    assert call(client, issued.token.text) == 200
    ApiClient.objects.update(disabled_at=timezone.now())
    eventually(lambda: call(client, issued.token.text) == 401, "the token is refused")


def test_a_disabled_client_is_refused_until_it_is_enabled(client: Client) -> None:
    issued = clients.create("press", Grant(scopes=["platform"]), by="ada")
    assert clients.disable(issued.client.pk, by="ada", reason="leaked")
    assert not clients.disable(issued.client.pk, by="ada")
    assert call(client, issued.token.text) == 401
    assert clients.enable(issued.client.pk, by="ada")
    assert not clients.enable(issued.client.pk, by="ada")
    assert call(client, issued.token.text) == 200


def test_a_clients_grant_can_be_changed_and_the_change_is_told() -> None:
    issued = clients.create("press", Grant(scopes=["platform"]), by="ada")
    clients.amend(issued.client.pk, {"scopes": ["policies:read"]}, by="bob")
    entry = AuditEntry.objects.get(action="api_client.amend")
    assert entry.actor == "bob"
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["scopes"], entry.after["scopes"]) == (["platform"], ["policies:read"])


def test_everything_done_to_a_client_is_in_the_audit_log() -> None:
    issued = clients.create("press", Grant(scopes=["platform"]), by="ada")
    clients.rotate(issued.client.pk, by="ada")
    clients.disable(issued.client.pk, by="ada", reason="leaked")
    clients.enable(issued.client.pk, by="ada")
    actions = AuditEntry.objects.filter(target="API client press").order_by("id").values_list("action", "reason")
    assert list(actions) == [
        ("api_client.create", ""),
        ("api_client.rotate", ""),
        ("api_client.disable", "leaked"),
        ("api_client.enable", ""),
    ]
    assert issued.token.text not in str(list(AuditEntry.objects.values()))


def test_use_is_noted_but_not_at_every_call(client: Client) -> None:
    text = clients.create("press", Grant(scopes=["platform"]), by="ada").token.text
    call(client, text)
    noted = ApiToken.objects.get().last_used_at
    assert noted is not None
    call(client, text)
    assert ApiToken.objects.get().last_used_at == noted


def test_a_name_belongs_to_one_client() -> None:
    clients.create("press", Grant(scopes=["platform"]), by="ada")
    with pytest.raises(NameTakenError, match="'press' already exists"):
        clients.create("press", Grant(scopes=["platform"]), by="ada")


def test_clients_about_to_lose_their_last_token_are_known() -> None:
    clients.create("soon", Grant(scopes=["platform"]), by="ada", lifetime=timedelta(days=3))
    clients.create("later", Grant(scopes=["platform"]), by="ada", lifetime=timedelta(days=30))
    clients.create("never", Grant(scopes=["platform"]), by="ada", lifetime=None)
    rotated = clients.create("rotated", Grant(scopes=["platform"]), by="ada", lifetime=timedelta(days=3))
    clients.rotate(rotated.client.pk, by="ada")
    assert [client.name for client in clients.expiring(timedelta(days=14))] == ["soon"]


@pytest.mark.django_db(transaction=True)
def test_the_command_prints_the_token_alone_and_can_rotate_it(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant = "7d0c3d4e-9d2c-4a53-9d8e-0a5c6d5f1a11"
    made = manage("create_api_client", "press", "--scope", "platform", "--tenant", tenant, "--expires", "30")
    assert made.returncode == 0, made.stderr
    assert call(client, made.stdout.strip()) == 200
    assert len(made.stdout.splitlines()) == 1
    call_command("create_api_client", "press", "--rotate", "--overlap", "0")
    rotated = capsys.readouterr().out
    assert (call(client, made.stdout.strip()), call(client, rotated.strip())) == (401, 200)
    assert len(rotated.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x"], "A client needs at least one scope"),
        (["x", "--target-zone", "local"], "A client needs at least one scope"),
        (["x", "--scope", "platform", "--expires", "9", "--never-expires"], "not allowed with argument"),
        (["x", "--scope", "everything"], "unknown scope 'everything'"),
        (["x", "--rotate"], "no API client named 'x'"),
        (["x", "--rotate", "--scope", "platform"], "--rotate changes the token alone"),
        (["x", "--tenant", "me"], "invalid UUID value"),
        (["x", "--expires", "0"], "whole number of days"),
        (["x", "--expires", "999999999999"], "whole number of days from 1 to 36,500"),
        (["x", "--expires", "9" * 5000], "whole number of days from 1 to 36,500"),
        (["x", "--rotate", "--overlap", "99999999999999999"], "whole number of seconds from 0 to"),
        (["x", "--rate", "0"], "rate must be a number above 0"),
        (["x", "--rate", "nan"], "rate must be a number above 0"),
        (["x", "--rate", "inf"], "rate must be a number above 0"),
        (["x", "--rate", "1e-320"], "rate must be a number above 0"),
        (["x", "--rotate", "--rate", "0"], "--rotate changes the token alone"),
        (["x", "--zone", ""], "An entry of zones has 1 to 256 printable characters"),
        (["x", "--zone", "a\x00b"], "An entry of zones"),
        ([""], "name has 1 to 100 printable characters"),
        ([" "], "name has 1 to 100 printable characters"),
        (["x" * 101], "name has 1 to 100 printable characters"),
        (["x\ny"], "name has 1 to 100 printable characters"),
        (["x\udcff"], "name has 1 to 100 printable characters"),
    ],
)
def test_the_command_refuses_in_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command("create_api_client", *arguments)
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize(("options", "days"), [([], 90), (["--expires", "9"], 9), (["--never-expires"], None)])
def test_a_token_of_the_command_lives_for_a_year_unless_it_is_said_otherwise(
    capsys: pytest.CaptureFixture[str], options: list[str], days: int | None
) -> None:
    call_command("create_api_client", "press", "--scope", "platform", *options)
    call_command("create_api_client", "press", "--rotate", *options)
    newest = ApiToken.objects.latest("pk")
    lives = newest.expires_at and round((newest.expires_at - newest.created_at) / timedelta(days=1))
    assert lives == days


def test_no_client_is_left_without_a_scope() -> None:
    client = clients.create("press", Grant(scopes=["platform"]), by="ada").client
    for grant in (Grant(), Grant(target_zones=["a"], tenants=[UUID(int=1)])):
        with pytest.raises(UnusableTermError, match="at least one scope"):
            clients.create("other", grant, by="ada")
        with pytest.raises(UnusableTermError, match="at least one scope"):
            clients.amend(client.pk, asdict(grant), by="ada")
    client.refresh_from_db()
    assert client.scopes == ["platform"]


@pytest.mark.parametrize(
    ("name", "given", "lifetime"),
    [
        ("", {}, None),
        ("x" * 101, {}, None),
        ("x", {"rate": float("nan")}, None),
        ("x", {"rate": -1.0}, None),
        ("x", {"consumers": ["y" * 257]}, None),
        ("x", {}, timedelta(days=40_000)),
        ("x", {}, timedelta(days=-1)),
    ],
)
def test_the_verb_refuses_what_no_client_can_have(name: str, given: dict[str, Any], lifetime: timedelta | None) -> None:
    with pytest.raises(UnusableTermError):
        clients.create(name, Grant(**given), by="ada", lifetime=lifetime)
    assert not ApiClient.objects.exists()


def test_a_rotation_that_would_never_end_is_refused() -> None:
    client = clients.create(
        "x" * 100, Grant(scopes=["platform"], rate=0.5), by="ada", lifetime=timedelta(days=36_500)
    ).client
    for terms in ({"overlap": timedelta.max}, {"overlap": -timedelta(1)}, {"lifetime": timedelta.max}):
        with pytest.raises(UnusableTermError):
            clients.rotate(client.pk, by="ada", **terms)
    assert client.tokens.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_process_refuses_in_one_line_too() -> None:
    for arguments in (["x" * 101], ["x", "--rate", "nan"]):
        failed = manage("create_api_client", *arguments)
        assert (failed.returncode, failed.stdout, len(failed.stderr.splitlines())) == (1, "", 1), failed.stderr


def test_a_client_is_switched_off_and_on_by_command(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    token = clients.create("press", Grant(scopes=["platform"]), by="ada").token.text
    call_command("api_client", "disable", "press", "--reason", "leaked")
    assert call(client, token) == 401
    call_command("api_client", "enable", "press", "--reason", "found")
    assert call(client, token) == 200
    call_command("api_client", "--json", "list")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["disabled the API client press", "enabled the API client press"]
    assert json.loads(lines[2])["state"] == "enabled"
    assert AuditEntry.objects.get(action="api_client.disable").reason == "leaked"
    with pytest.raises(CommandError, match="no API client named 'other'"):
        call_command("api_client", "enable", "other", "--reason", "x")


def test_a_grant_is_changed_from_a_shell_and_what_is_not_named_stays(capsys: pytest.CaptureFixture[str]) -> None:
    tenant = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11"
    clients.create("press", Grant(scopes=["platform"], zones=["Plant A"], rate=5), by="ada")
    options = ["--scopes", "facts:append", "facts:fetch", "--tenants", tenant, "--rate", "0"]
    call_command("api_client", "--json", "amend", "press", *options)
    told = json.loads(capsys.readouterr().out)
    assert (told["scopes"], told["zones"]) == (["facts:append", "facts:fetch"], ["Plant A"])
    assert (told["tenants"], told["rate"]) == ([tenant], None)
    call_command("api_client", "amend", "press", "--zones", "--rate", "2")
    client = ApiClient.objects.get()
    assert (client.scopes, client.zones, client.rate) == (["facts:append", "facts:fetch"], [], 2.0)
    entry = AuditEntry.objects.filter(action="api_client.amend").latest("id")
    assert entry.actor.startswith("command:")
    assert ((entry.before or {})["zones"], (entry.after or {})["zones"]) == (["Plant A"], [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ghost"], "There is no API client named 'ghost'"),
        (["press", "--scopes", "everything"], "unknown scope 'everything'"),
        (["press", "--rate", "-1"], "above 0"),
        (["press", "--rate", "nan"], "above 0"),
    ],
)
def test_a_grant_that_cannot_be_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    clients.create("press", Grant(scopes=["platform"]), by="ada")
    with pytest.raises(CommandError, match=words):
        call_command("api_client", "amend", *arguments)
    assert ApiClient.objects.get().scopes == ["platform"]
