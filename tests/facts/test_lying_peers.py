"""A peer that answers over HTTP and does not tell the truth."""

from typing import Any

import pytest

from facts import provisioning
from facts.core import gates
from facts.models import Boundary, ForwardedFact
from tests.commands import run
from tests.facts.drafts import OFFICE, PLANT, draft
from tests.facts.peers import Garbled, Script, page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


def drain() -> Boundary:
    with pytest.raises(SystemExit):
        run("forward", "--drain")
    return Boundary.objects.get()


LIES = {
    "of another zone": (page((0, draft(0)), (1, draft(1, from_zone="Mars"))), "'Mars'"),
    "for another zone": (page((0, draft(0)), (1, draft(1, to_zone="Mars"))), "'Mars'"),
    "no fact": (page((0, draft(0)), (1, draft(1, unheard=1))), "unheard is unknown"),
    "an id with another content": (page((0, draft(0)), (1, draft(0, object_json=1))), "different content"),
    "an offset twice": (page((0, draft(0)), (0, draft(1))), "has arrived before"),
    "an offset that is none": (page((0, draft(0)), (-5, draft(1))), "offset -5"),
    "a field with U+0000": (page((0, draft(0)), (1, draft(1, **{"a\x00b": 1}))), "a\ufffdb is unknown"),
    "a field without end": (page((0, draft(0)), (1, draft(1, **{"a" * 5000: 1}))), "aaa"),
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
    assert "does not come from a boundary" in boundary.gate_reason
    script.pages = []
    run("forward", "--drain")
    assert Boundary.objects.get().gate == "normal"


def test_an_answer_that_cannot_be_decoded_is_a_failure_and_closes_the_gate(script: Script) -> None:
    script.pages = [Garbled(b"no gzip")] * 40
    boundary = drain()
    assert (boundary.alarm, boundary.gate, boundary.gate_by) == ("", "autonomous", "")
    assert "the boundary does not answer: Error -3" in boundary.gate_reason
    script.pages = []
    run("forward", "--drain")
    assert Boundary.objects.get().gate == "normal"


def test_a_peer_that_keeps_its_cursor_where_it_is_does_not_keep_a_drain_for_ever(script: Script) -> None:
    script.pages = [page((0, draft(0)))] * 40
    script.keeps_its_cursor = True
    boundary = drain()
    assert (boundary.frontier, boundary.gate) == (0, "autonomous")
    assert "its cursor stays at -1" in boundary.gate_reason


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
