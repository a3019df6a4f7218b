"""A peer that answers over HTTP and does not tell the truth."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from facts import provisioning
from facts.core import gates
from facts.models import Boundary, ForwardedFact
from tests.commands import run
from tests.facts.making import OFFICE, PLANT, draft, make_boundary

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


class Script:
    """What the peer answers, by path; and what it was told."""

    def __init__(self) -> None:
        self.consumers = {"office": (PLANT, OFFICE)}
        self.pages: list[Any] = []
        self.confirmed: list[int] = []

    def answer(self, path: str) -> Any:
        if path == "/api/v1/client":
            return {"consumers": list(self.consumers)}
        name, _, rest = path.removeprefix("/api/v1/consumers/").partition("/")
        if rest.startswith("facts"):
            return self.pages.pop(0) if self.pages else {"facts": [], "cursor": max([-1, *self.confirmed])}
        from_zone, to_zone = self.consumers[name]
        return {"name": name, "from_zone": from_zone, "to_zone": to_zone, "cursor": -1, "newest": 9}


@contextmanager
def peer(script: Script) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(script.answer(self.path))

        def do_POST(self) -> None:
            offset = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["offset"]
            script.confirmed.append(offset)
            self._say({"cursor_advanced_to": offset})

        def _say(self, body: Any) -> None:
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def page(*facts: tuple[int, dict[str, Any]], cursor: int = -1) -> dict[str, Any]:
    return {"facts": [{"offset": offset, **fact} for offset, fact in facts], "cursor": cursor}


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    made = Script()
    (tmp_path / "token").write_text("token\n")
    with peer(made) as url:
        make_boundary(source_url=url, source_token_file=str(tmp_path / "token"))
        yield made


def drain() -> Boundary:
    with pytest.raises(SystemExit):
        run("forward", "--drain")
    return Boundary.objects.get()


LIES = {
    "of another zone": (page((0, draft(0)), (1, draft(1, from_zone="Mars"))), "'Mars'"),
    "for another zone": (page((0, draft(0)), (1, draft(1, to_zone="Mars"))), "'Mars'"),
    "no fact": (page((0, draft(0)), (1, draft(1, unheard=1))), "unheard is not known"),
    "an id with another content": (page((0, draft(0)), (1, draft(0, object_json=1))), "another content"),
    "an offset twice": (page((0, draft(0)), (0, draft(1))), "has arrived before"),
    "an offset that is none": (page((0, draft(0)), (-5, draft(1))), "offset -5"),
}


@pytest.mark.parametrize(("lie", "told"), LIES.values(), ids=LIES.keys())
def test_a_lie_stops_the_handoff_with_an_alarm_until_a_person_has_looked(script: Script, lie: Any, told: str) -> None:
    script.pages = [lie]
    boundary = drain()
    assert told in boundary.alarm
    assert (boundary.frontier, script.confirmed) == (0, [0])
    assert list(ForwardedFact.objects.values_list("message_id", flat=True)) == ["order-0-released"]
    script.pages = [page((1, draft(1)), cursor=0)]
    assert told in drain().alarm, "it is not tried again by itself"
    provisioning.open_gate(PLANT, OFFICE, by="ada", reason="the peer was put right")
    run("forward", "--drain")
    assert Boundary.objects.get().frontier == 1


def test_a_number_that_a_peer_has_taken_before_it_was_refused_crosses(script: Script) -> None:
    script.pages = [page((0, draft(0, object_json={"count": 10**20})), (1, draft(1)))]
    run("forward", "--drain")
    assert '"count":100000000000000000000}' in ForwardedFact.objects.get(offset=0).content
    assert Boundary.objects.get().frontier == 1


@pytest.mark.parametrize("body", [b"<html>", {"facts": [{"offset": 0}], "cursor": -1}])
def test_an_answer_that_is_none_is_a_failure_and_no_alarm(script: Script, body: Any) -> None:
    script.pages = [body] * 10
    boundary = drain()
    assert (boundary.alarm, boundary.gate, boundary.gate_by) == ("", "autonomous", "")
    assert "not one of a boundary" in boundary.gate_reason
    script.pages = []
    run("forward", "--drain")
    assert Boundary.objects.get().gate == "normal"


@pytest.mark.parametrize(
    ("consumers", "told"),
    [
        ({"other": (OFFICE, PLANT)}, "it is for: none"),
        ({"a": (PLANT, OFFICE), "b": (PLANT, OFFICE)}, "it is for: a, b"),
    ],
)
def test_the_consumer_to_read_as_must_be_the_only_one(script: Script, consumers: Any, told: str) -> None:
    script.consumers = consumers
    Boundary.objects.update(failures=gates.FAILURES - 1)  # the next one closes the gate
    assert told in drain().gate_reason


def test_one_that_is_named_is_taken(script: Script) -> None:
    script.consumers = {"a": (PLANT, OFFICE), "b": (PLANT, OFFICE)}
    script.pages = [page((0, draft(0)))]
    Boundary.objects.update(source_consumer="b")
    run("forward", "--drain")
    assert Boundary.objects.get().frontier == 0
