"""A peer is one of those that the deployment allows, its token is a file in one folder, and neither leaks."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from ergon_site.access.models import AuditEntry
from facts import provisioning
from facts.client import AsyncBoundaryClient, BoundaryClient
from facts.core.errors import ProvisioningError
from facts.core.gates import FAILURES
from facts.models import Boundary, Zone
from tests.commands import run, running
from tests.facts.drafts import OFFICE, PLANT, make_boundary
from tests.facts.peers import TOKEN, keep_token
from tests.processes import LIMIT, manage

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "correct-horse-battery-staple"
ADD = "/admin/facts/boundary/add/"


@contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """A server that nobody should speak to: its address, and the credentials that it was sent."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers.get("Authorization", "none"))
            self.send_error(503)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        server.server_close()


def make_row(url: str, token_file: str) -> Boundary:
    """As an earlier release, or somebody with the database at hand, may have written it."""
    zones = [Zone.objects.get_or_create(name=name)[0] for name in (PLANT, OFFICE)]
    return Boundary.objects.create(
        from_zone=zones[0], to_zone=zones[1], source_url=url, source_token_file=token_file, source_consumer="office"
    )


def forward(**variables: str) -> tuple[Boundary, str]:
    """The boundary after a handoff that cannot succeed, and all that the process said."""
    Boundary.objects.update(failures=FAILURES - 1)  # the next one closes the gate
    with running("forward", "--drain", ERGON_HANDOFF_TIMEOUT="20", **variables) as forwarder:
        told = "".join(forwarder.communicate(timeout=LIMIT))
        assert forwarder.returncode == 1
    return Boundary.objects.get(), told


@pytest.mark.parametrize("content", [SECRET, f"{SECRET}\nroot:x:0:0\n", f"ergon_{SECRET}", "", f"{SECRET}\0ä"])
def test_no_file_outside_the_folder_of_tokens_reaches_a_peer_or_a_page(
    browse: Client, tmp_path: Path, content: str
) -> None:
    (tmp_path / "shadow").write_text(content)
    with listener() as (url, heard):
        made = make_row(url, str(tmp_path / "shadow"))
        boundary, told = forward()
    assert heard == []
    shown = browse.get(f"/admin/facts/boundary/{made.pk}/change/").content.decode()
    for text in (boundary.gate_reason, told, shown):
        assert SECRET not in text
    assert "the token shadow cannot be read from ERGON_PEER_TOKENS" in told


@pytest.mark.parametrize("content", [SECRET, f"{TOKEN}\nroot:x:0:0\n", f"{TOKEN} {SECRET}", "", f"{TOKEN}\0"])
def test_what_has_not_the_form_of_a_token_is_neither_sent_nor_repeated(content: str) -> None:
    with listener() as (url, heard):
        make_row(url, keep_token(content, "odd"))
        boundary, told = forward()
    assert heard == []
    assert SECRET not in told + boundary.gate_reason
    assert "root" not in told + boundary.gate_reason
    assert "does not hold an API token" in told


@pytest.mark.once
def test_a_pipe_in_the_folder_of_tokens_does_not_stop_the_forwarder() -> None:
    name = keep_token(name="pipe")
    (settings.ERGON_PEER_TOKENS / name).unlink()
    os.mkfifo(settings.ERGON_PEER_TOKENS / name)
    with listener() as (url, heard):
        make_row(url, name)
        _, told = forward()
    assert (heard, "does not hold an API token" in told) == ([], True)


def test_a_row_of_an_earlier_release_finds_its_token_in_the_folder_by_its_last_part() -> None:
    keep_token(name="office.token")
    with listener() as (url, heard):
        make_row(url, "/srv/ergon/office.token")
        forward()
    assert set(heard) == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("allowed", ["", "http://127.0.0.1", "https://127.0.0.1:*", "http://*.127.0.0.1:*"])
def test_a_peer_that_is_not_allowed_is_not_spoken_to_even_if_its_row_is_there(allowed: str) -> None:
    with listener() as (url, heard):
        make_row(url, keep_token())
        boundary, told = forward(ERGON_PEERS=allowed)
    assert heard == []
    assert "is not an allowed peer" in told
    assert "ERGON_PEERS" in boundary.gate_reason


REFUSED = [
    ({"source_url": "https://evil.example"}, "is not an allowed peer"),
    ({"source_url": "https://peer.example:8443"}, "is not an allowed peer"),
    ({"source_url": "https://peer.example.evil.example"}, "is not an allowed peer"),
    ({"source_url": "https://peer.example@evil.example"}, "without a user"),
    ({"source_url": "https://evil.example#@peer.example"}, "without a user"),
    ({"source_url": "https://evil.example\\@peer.example"}, "without a user"),
    ({"source_url": "https://evil.example?peer.example"}, "without a user"),
    ({"source_url": "file:///etc/passwd"}, "without a user"),
    ({"source_url": "https://peer.example:0"}, "without a user"),
    ({"source_url": f"https://peer.example/{'x' * 500}"}, "without a user"),
    ({"source_token_file": ""}, "needs a token"),
    ({"source_token_file": "/etc/shadow"}, "ERGON_PEER_TOKENS"),
    ({"source_token_file": "../secret_key"}, "ERGON_PEER_TOKENS"),
    ({"source_token_file": ".."}, "ERGON_PEER_TOKENS"),
    ({"source_token_file": "plant\0"}, "ERGON_PEER_TOKENS"),
]


@pytest.mark.once
@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_no_boundary_is_made_with_another_address_or_a_path(change: dict[str, str], words: str) -> None:
    with pytest.raises(ProvisioningError, match=words):
        make_boundary(**{"source_url": "https://peer.example", "source_token_file": "plant", **change})
    assert not Boundary.objects.exists()


@pytest.mark.once
def test_a_retired_boundary_cannot_be_brought_back_with_another_address() -> None:
    made = make_boundary(source_url="https://peer.example", source_token_file="plant")
    run("boundary", "retire", PLANT, OFFICE, "--reason", "moved", "--yes")
    with pytest.raises(ProvisioningError, match="is not an allowed peer"):
        make_boundary(source_url="https://evil.example", source_token_file="plant")
    made.refresh_from_db()
    assert (made.is_retired, made.source_url) == (True, "https://peer.example")


@pytest.mark.once
def test_the_command_takes_the_name_of_a_token_and_no_path() -> None:
    for zone in (PLANT, OFFICE):
        provisioning.create_zone(zone, by="tests")
    create = ["boundary", "create", PLANT, OFFICE, "--source", "https://peer.example"]
    for token in ("/etc/shadow", "../secret_key"):
        refused = manage(*create, "--token", token)
        assert refused.returncode == 1
        assert "ERGON_PEER_TOKENS" in refused.stderr
    refused = manage("boundary", "create", PLANT, OFFICE, "--source", "https://evil.example", "--token", "plant")
    assert "is not an allowed peer" in refused.stderr
    assert manage(*create, "--token", "plant").returncode == 0
    assert Boundary.objects.get().source_token == "plant"


def asked(**changes: str) -> dict[str, str]:
    plan = {"from_zone": PLANT, "to_zone": OFFICE, "keep_days": "30", "reason": "new plant"}
    return {**plan, **changes}


def test_only_administrators_may_name_a_peer_in_the_console(client: Client, hire: Callable[[str], User]) -> None:
    for zone in (PLANT, OFFICE):
        provisioning.create_zone(zone, by="tests")
    peer = {"source_url": "https://peer.example", "source_token": "plant"}
    client.force_login(hire("lead"))
    form = client.get(ADD).content.decode()
    assert form.count("Needs the role administrator.") == 4
    for sent in (peer, {"source_token": "plant"}, {"source_consumer": "office"}, {"with_artifacts": "on"}):
        answer = client.post(ADD, asked(**sent))
        assert (answer.status_code, Boundary.objects.exists()) == (200, False)
    client.force_login(hire("administrator"))
    assert "Needs the role" not in client.get(ADD).content.decode()
    assert client.post(ADD, asked(**peer)).status_code == 302
    made = Boundary.objects.get()
    assert (made.source_url, made.source_token) == ("https://peer.example", "plant")
    assert AuditEntry.objects.filter(action="boundary.create", actor="administrator").count() == 1
    assert (
        "with the token <code>plant</code>" in client.get(f"/admin/facts/boundary/{made.pk}/change/").content.decode()
    )


def test_a_lead_makes_boundaries_of_this_database(client: Client, hire: Callable[[str], User]) -> None:
    for zone in (PLANT, OFFICE):
        provisioning.create_zone(zone, by="tests")
    client.force_login(hire("lead"))
    assert client.post(ADD, asked()).status_code == 302
    assert not Boundary.objects.get().is_remote


@pytest.mark.once
@pytest.mark.parametrize("kind", [BoundaryClient, AsyncBoundaryClient])
@pytest.mark.parametrize("token", [f"{SECRET}\nroot", f"{SECRET} x", f"{SECRET}ä", f"{SECRET}\0", "", SECRET * 200])
def test_a_client_refuses_what_cannot_be_a_token_without_repeating_it(kind: Any, token: str) -> None:
    with pytest.raises(ProvisioningError) as refusal:
        kind("http://127.0.0.1:9", token)
    assert SECRET not in f"{refusal.value} {refusal.value!r} {refusal.value.__cause__}"
