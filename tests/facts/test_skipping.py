"""The way out of an alarm: an administrator skips what it is about, and everybody can see that, for ever."""

import json
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import DatabaseError, connection, transaction

from ergon_site.access.models import AuditEntry
from facts import ledger, provisioning
from facts.models import Boundary, ForwardedFact, SkippedFact
from tests.commands import ask, run
from tests.facts.drafts import OFFICE, PLANT, draft
from tests.facts.peers import Script, page

pytestmark = pytest.mark.django_db(transaction=True)

CONTENTS = {
    "an id with another content": draft(0, object_json=1),
    "of another zone": draft(1, from_zone="Mars"),
    "no fact": draft(1, unheard=1),
}


def drain() -> Boundary:
    with pytest.raises(SystemExit):
        run("forward", "--drain")
    return Boundary.objects.get()


def read(consumer: str) -> list[tuple[int, Any]]:
    return [(offset, json.loads(content)["fact"]) for offset, content in ledger.fetch(consumer).facts]


@pytest.mark.parametrize("wrong", CONTENTS.values(), ids=CONTENTS.keys())
def test_what_stops_a_boundary_is_skipped_and_readers_find_a_notice_in_its_place(script: Script, wrong: Any) -> None:
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    script.pages = [page((0, draft(0)), (1, wrong), (2, draft(2)))]
    alarm = drain().alarm
    # To open the gate is no way out where the peer cannot change what it has.
    provisioning.open_gate(PLANT, OFFICE, by="ada", reason="looked")
    script.pages = [page((1, wrong), (2, draft(2)), cursor=0)]
    assert drain().alarm == alarm
    told = ask("boundary", "skip", PLANT, OFFICE, "1", "--reason", "the plant knows of it")
    assert (told["alarm"], told["alarm_offset"], told["frontier"]) == ("", None, 1)
    script.pages = [page((1, wrong), (2, draft(2)), cursor=0)]
    run("forward", "--drain")
    assert (Boundary.objects.get().frontier, script.confirmed) == (2, [0, 2])
    (_, first), (_, notice), (_, last) = found = read("erp")
    assert [offset for offset, _ in found] == [0, 1, 2]
    assert (first["predicate"], last["predicate"]) == ("was_released", "was_released")
    assert (notice["subject"], notice["predicate"]) == ("skipped_fact:1", "was_skipped")
    assert (notice["object_json"]["alarm"], notice["object_json"]["reason"]) == (alarm, "the plant knows of it")
    skipped = SkippedFact.objects.get()
    assert (skipped.offset, skipped.alarm, skipped.reason) == (1, alarm, "the plant knows of it")
    entry = AuditEntry.objects.get(action="boundary.skip")
    assert (entry.actor, entry.reason, entry.before) == (skipped.skipped_by, skipped.reason, {"alarm": alarm})


def test_a_fact_that_has_arrived_stays_where_the_peer_tells_of_another(script: Script) -> None:
    script.pages = [page((0, draft(0)))]
    run("forward", "--drain")
    script.pages = [page((0, draft(7)), (1, draft(1)))]
    assert "has arrived before" in drain().alarm
    run("boundary", "skip", PLANT, OFFICE, "0", "--reason", "a backup was restored there")
    script.pages = [page((0, draft(7)), (1, draft(1)))]
    run("forward", "--drain")
    arrived = list(ForwardedFact.objects.order_by("offset").values_list("offset", "message_id"))
    assert arrived == [(0, "order-0-released"), (1, "order-1-released")]
    assert SkippedFact.objects.get().offset == 0


def test_facts_that_somebody_else_has_confirmed_at_the_peer_are_skipped_together(script: Script) -> None:
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    script.pages = [page((0, draft(0)))]
    run("forward", "--drain")
    script.pages = [page((4, draft(4)), cursor=3)]
    boundary = drain()
    assert (boundary.alarm_offset, boundary.alarm_last) == (1, 3)
    for last in ("0", "4"):
        with pytest.raises(CommandError, match="names the offsets 1 to 3"):
            run("boundary", "skip", PLANT, OFFICE, "1", "--through", last, "--reason", "r")
    text = run("boundary", "skip", PLANT, OFFICE, "1", "--through", "3", "--reason", "they are lost")
    assert "skipped offsets 1 to 3" in text
    script.pages = [page((4, draft(4)), cursor=3)]
    run("forward", "--drain")
    assert [offset for offset, _ in read("erp")] == [0, 1, 2, 3, 4]


def test_a_gap_beside_what_is_skipped_is_still_a_gap(script: Script) -> None:
    script.pages = [page((0, draft(0)), (2, draft(2, unheard=1)))]
    drain()
    run("boundary", "skip", PLANT, OFFICE, "2", "--reason", "r")
    assert Boundary.objects.get().frontier == 0
    script.pages = [page((2, draft(2, unheard=1)), cursor=0)] * 10
    assert "skipped offset 1" in drain().gate_reason
    script.pages = [page((1, draft(1)), (2, draft(2, unheard=1)), cursor=0)]
    run("forward", "--drain")
    assert Boundary.objects.get().frontier == 2


def test_nothing_else_is_skipped(script: Script) -> None:
    def refused(offset: str) -> str:
        with pytest.raises(CommandError) as caught:
            run("boundary", "skip", PLANT, OFFICE, offset, "--reason", "r")
        return str(caught.value)

    assert "the boundary has no alarm" in refused("0")
    script.pages = [page((0, draft(0)), (1, draft(1, unheard=1)))]
    drain()
    assert "the alarm names offset 1, not 2: skip that one first" in refused("2")
    provisioning.open_gate(PLANT, OFFICE, by="ada", reason="looked")
    for offset in (-5, 2**70):
        script.pages = [page((offset, draft(1)), cursor=0)]
        assert f"offset {offset}" in drain().alarm
        assert "the alarm names no offset" in refused("1")
        provisioning.open_gate(PLANT, OFFICE, by="ada", reason="looked")
    assert not SkippedFact.objects.exists()


def test_the_database_itself_keeps_what_was_skipped(script: Script) -> None:
    script.pages = [page((0, draft(0, unheard=1)))]
    drain()
    run("boundary", "skip", PLANT, OFFICE, "0", "--reason", "r")
    for statement in ("UPDATE facts_skippedfact SET reason = 'x'", "DELETE FROM facts_skippedfact"):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
