"""The handoff: once, in order, and not at all where something cannot be true."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from facts import forwarding, ledger, provisioning
from facts.core.errors import AlarmError, FactError, UnreachableError
from facts.core.gates import FAILURES
from facts.forwarding import running
from facts.forwarding.sources import Batch
from facts.ledger import Arrival, gating, holding
from facts.ledger.receiving import NotHoldingError
from facts.models import Boundary, ForwardedFact
from tests.commands import ask, run
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.peers import keep_token
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ME = "this process"


class Peer:
    """A source that says what the test wants it to say."""

    def __init__(self, *batches: Any, newest: int = 100) -> None:
        self.batches, self.newest = list(batches), newest
        self.confirmed: list[int] = []

    def fetch(self, boundary: Boundary, limit: int, wait: float) -> Batch:
        batch = self.batches.pop(0)
        if isinstance(batch, Exception):
            raise batch
        return batch if isinstance(batch, Batch) else arrivals(*batch)

    def confirm(self, offset: int) -> None:
        self.confirmed.append(offset)

    def head(self) -> int:
        return self.newest

    def close(self) -> None: ...


def arrivals(*numbers: int, cursor: int = -1) -> Batch:
    return Batch([Arrival(number, ledger.prepare(draft(number))) for number in numbers], cursor)


def make_remote(**plan: Any) -> Boundary:
    boundary = make_boundary(source_url="http://peer.example", source_token_file="nobody", **plan)
    assert holding.hold(boundary, ME)
    return boundary


def hand_over(source: Any) -> Any:
    return forwarding.hand_over(Boundary.objects.select_related("from_zone", "to_zone").get(), source, holder=ME)


def forwarded() -> list[int]:
    return list(ForwardedFact.objects.order_by("offset").values_list("offset", flat=True))


def test_what_is_in_the_store_buffer_enters_the_forward_buffer_once_and_in_order() -> None:
    make_boundary()
    ledger.append_many(draft(number) for number in range(600))
    run("forward", "--drain")
    assert forwarded() == list(range(600))
    ledger.append(draft(600))
    run("forward", f"{PLANT}->{OFFICE}", "--drain")
    boundary = Boundary.objects.get()
    assert (forwarded()[-1], boundary.frontier, boundary.held_by) == (600, 600, None)
    assert list(ForwardedFact.objects.values_list("offset", "content", "digest")) == list(
        ledger.reading.readable(boundary).values_list("offset", "content", "digest")
    )


def test_a_peers_facts_are_kept_confirmed_and_readable_by_consumers_here() -> None:
    make_remote()
    peer = Peer([0, 1, 2])
    handed = hand_over(peer)
    assert (handed.new, handed.frontier, handed.backlog, peer.confirmed) == (3, 2, 98, [2])
    boundary = Boundary.objects.get()
    assert (boundary.next_offset, boundary.source_head) == (3, 100)
    assert boundary.stored_bytes == sum(len(row.content) for row in ForwardedFact.objects.all())
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    assert [offset for offset, _ in ledger.fetch("erp").facts] == [0, 1, 2]


def test_what_comes_again_counts_as_confirmed() -> None:
    make_remote()
    peer = Peer([0, 1], [0, 1, 2])
    hand_over(peer)
    assert hand_over(peer).new == 1
    assert (forwarded(), peer.confirmed) == ([0, 1, 2], [1, 2])


def test_what_a_source_has_not_sent_again_after_a_failover_is_not_confirmed() -> None:
    """It may have other facts there by now, whose offsets it has given away before."""
    make_remote()
    peer = Peer(
        [0, 1, 2, 3], arrivals(cursor=0), arrivals(1, cursor=0), Batch([Arrival(2, ledger.prepare(draft(9)))], 1)
    )
    for _ in range(3):
        hand_over(peer)
    with pytest.raises(AlarmError, match="at offset 2, where 'order-2-released' has arrived before"):
        hand_over(peer)
    assert (forwarded(), peer.confirmed) == ([0, 1, 2, 3], [3, 1])


def test_the_frontier_waits_for_what_a_source_leaves_out() -> None:
    make_remote()
    peer = Peer([0, 2], arrivals(1, 2, cursor=0))
    with pytest.raises(UnreachableError, match="skipped offset 1"):
        hand_over(peer)
    assert Boundary.objects.get().frontier == 0
    assert hand_over(peer).frontier == 2
    assert peer.confirmed == [0, 2]


def test_an_empty_buffer_begins_where_the_peers_consumer_begins() -> None:
    make_remote()
    assert hand_over(Peer(arrivals(50, 51, cursor=49))).frontier == 51
    assert Boundary.objects.get().first_offset == 50


LIES = {
    "another content": Batch([Arrival(1, ledger.prepare(draft(0, object_json={"quantity": 13})))], 0),
    "another message where one has arrived": Batch([Arrival(0, ledger.prepare(draft(7)))], -1),
    "a cursor beyond what has arrived": arrivals(9, cursor=8),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_what_cannot_be_true_is_an_alarm_and_advances_nothing(lie: Batch) -> None:
    make_remote()
    peer = Peer([0], lie)
    hand_over(peer)
    with pytest.raises(AlarmError):
        hand_over(peer)
    assert (Boundary.objects.get().frontier, forwarded(), peer.confirmed) == (0, [0], [0])


def test_what_came_before_a_lie_is_kept() -> None:
    make_remote()
    peer = Peer(Batch(arrivals(0, 1).arrivals, -1, AlarmError("the third is a lie")))
    with pytest.raises(AlarmError, match="third"):
        hand_over(peer)
    assert (forwarded(), peer.confirmed) == ([0, 1], [1])


def test_only_who_holds_a_boundary_hands_it_over() -> None:
    boundary = make_remote()
    assert not holding.hold(boundary, "another process")
    with pytest.raises(NotHoldingError):
        forwarding.hand_over(boundary, Peer([0]), holder="another process")
    holding.let_go(boundary, ME)
    assert holding.hold(boundary, "another process")


def test_failures_close_the_gate_and_the_first_success_opens_it() -> None:
    boundary = make_remote()
    for _ in range(FAILURES):
        gating.note_failure(boundary.pk, "connection refused")
    boundary.refresh_from_db()
    assert (boundary.gate, boundary.gate_by, boundary.gate_reason) == ("autonomous", "", "connection refused")
    hand_over(Peer([0], newest=1000))
    boundary.refresh_from_db()
    assert (boundary.gate, boundary.failures) == ("reconciling", 0)
    hand_over(Peer([1], newest=50))
    boundary.refresh_from_db()
    assert boundary.gate == "normal"


def test_a_gate_that_a_person_has_closed_stays_closed_until_a_person_opens_it() -> None:
    make_boundary()
    ledger.append(draft(1))
    ask("boundary", "close", PLANT, OFFICE, "--reason", "maintenance of the link")
    with pytest.raises(SystemExit):
        run("forward", "--drain")
    assert forwarded() == []
    assert ask("boundary", "open", PLANT, OFFICE, "--reason", "done")["gate"] == "normal"
    run("forward", "--drain")
    assert forwarded() == [0]


def test_a_failure_does_not_take_over_a_gate_that_a_person_has_closed() -> None:
    boundary = make_remote()
    provisioning.close_gate(PLANT, OFFICE, by="ada", reason="planned")
    for _ in range(FAILURES + 1):
        gating.note_failure(boundary.pk, "connection refused")
    gating.note_success(boundary.pk, head=0)
    boundary.refresh_from_db()
    assert (boundary.gate, boundary.gate_by, boundary.gate_reason) == ("autonomous", "ada", "planned")


def test_a_token_that_cannot_be_read_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    boundary = make_remote()
    holding.let_go(boundary, ME)
    Boundary.objects.update(failures=FAILURES - 1)  # the next one closes the gate
    with pytest.raises(SystemExit):
        run("forward", "--drain")
    boundary.refresh_from_db()
    assert (boundary.gate, boundary.gate_reason) == (
        "autonomous",
        "the token nobody cannot be read from ERGON_PEER_TOKENS: No such file or directory",
    )


def test_the_database_itself_refuses_to_change_what_was_forwarded() -> None:
    make_boundary()
    ledger.append(draft(1))
    run("forward", "--drain")
    for statement in ("UPDATE facts_forwardedfact SET subject = 'x:y'", "DELETE FROM facts_forwardedfact"):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_an_unexpected_zone_or_a_text_that_is_no_fact_is_a_lie() -> None:
    from facts.core.steps import Fetched
    from facts.forwarding.sources import PeerSource

    boundary = Boundary.objects.select_related("from_zone", "to_zone").get(pk=make_remote().pk)
    boundary.source_token_file = keep_token()
    source = PeerSource(boundary)
    for fetched in (
        Fetched(0, draft(1, from_zone="Mars")["envelope"], draft(1)["fact"]),
        Fetched(0, {"message_id": "x"}, {}),
        Fetched(-1, **draft(1)),
        Fetched("0", **draft(1)),  # type: ignore[arg-type]
    ):
        batch = source._checked([fetched], -1)
        assert batch.arrivals == []
        assert isinstance(batch.trouble, FactError)
    source.close()


@contextmanager
def forwarding_all() -> Iterator[tuple[running.Forwarding, list[str]]]:
    """A forwarding of everything, in a thread; and what it tells."""
    told: list[str] = []
    service = running.Forwarding(
        list(Boundary.objects.all()), lambda event, **_: told.append(event), is_draining=False, is_all=True
    )

    def run() -> None:
        service.run(each_turn=lambda: None)
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield service, told
    finally:
        service.stop()
        thread.join()


def test_a_boundary_without_facts_rests_until_there_are_some_or_somebody_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boundary, looks, turns = make_boundary(), [0], [0]

    def look(ids: Any) -> Any:
        looks[0] += 1
        return ledger.boundaries.look_at(ids)

    def turn(forwarder: running.Forwarder) -> float:
        turns[0] += 1
        return taking_turns(forwarder)

    taking_turns = running.Forwarder._turn
    monkeypatch.setattr(running, "look_at", look)
    monkeypatch.setattr(running.Forwarder, "_turn", turn)
    monkeypatch.setattr(running, "SELDOM", 0.01)
    monkeypatch.setattr(running, "LOOK", 0.01)
    with forwarding_all() as (service, told):
        [forwarder] = service.forwarders
        eventually(lambda: forwarder.is_resting, "the boundary rests")
        before, seen = turns[0], looks[0]
        eventually(lambda: looks[0] > seen + 20, "it was looked at for a while")
        assert turns[0] == before
        ledger.append(draft(0))
        eventually(lambda: forwarded() == [0], "what was appended is handed over")
        provisioning.close_gate(*boundary.zones, by="ada", reason="not now")
        eventually(lambda: "closed" in told, "the closed gate is noticed")
        ledger.append(draft(1))
        seen = looks[0]
        eventually(lambda: looks[0] > seen + 20, "it was looked at for a while")
        assert forwarded() == [0]
        provisioning.open_gate(*boundary.zones, by="ada", reason="now")
        eventually(lambda: forwarded() == [0, 1], "what has waited is handed over")


def test_boundaries_that_rest_are_kept_for_another_term_unless_somebody_else_has_one() -> None:
    mine, other = make_boundary(), make_boundary(to_zone="warehouse")
    long = timedelta(hours=1)
    assert holding.hold(mine, ME)
    assert holding.hold(other, ME)
    assert holding.keep_all({mine.pk: ME, other.pk: ME}, term=long)
    assert not holding.hold(mine, "another process")
    holding.let_go(other, ME)
    assert holding.hold(other, "another process")
    assert not holding.keep_all({mine.pk: ME, other.pk: ME}, term=long)
