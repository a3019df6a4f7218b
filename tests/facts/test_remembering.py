"""Message ids outlive their facts: what was truncated is still recognised when it comes again."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from engines.worker import maintenance
from facts import ledger, provisioning
from facts.core.errors import ConflictingDuplicateError, HistoryTruncatedError
from facts.ledger import Appended, Arrival, holding, receiving
from facts.models import Boundary, Fact, ForwardedFact, RememberedMessage
from tests.commands import ask, run
from tests.database import append_only_lifted
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.peers import Script, page
from tests.facts.test_truncating import age
from tests.processes import LIMIT, eventually

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 60  # more than are written one by one


def truncated(count: int, of: int) -> None:
    """A boundary with `of` facts, of which the first `count` have been truncated."""
    make_boundary()
    ledger.append_many(draft(number) for number in range(of))
    run("forward", "--drain")
    age(count)
    assert ledger.truncate(PLANT, OFFICE, by="ada").removed == count


def again(*drafts: Any) -> list[Any]:
    return ledger.append_many(drafts)


def test_a_repeat_of_what_was_truncated_gets_the_offset_that_it_had() -> None:
    truncated(3, of=4)
    repeated = ledger.append(draft(1))
    assert (repeated.offset, repeated.is_duplicate) == (1, True)
    with transaction.atomic():
        assert ledger.append(draft(2)) == Appended(2, "order-2-released", is_duplicate=True)
    assert [one.offset for one in again(draft(0), draft(3), draft(4))] == [0, 3, 4]
    assert list(Fact.objects.order_by("offset").values_list("offset", flat=True)) == [3, 4]


def test_many_at_once_among_which_one_was_truncated_are_each_told_apart() -> None:
    truncated(2, of=2)
    results = again(*(draft(number) for number in range(MANY)))
    assert [one.offset for one in results] == list(range(MANY))
    assert [one.is_duplicate for one in results] == [True, True, *[False] * (MANY - 2)]


def test_another_content_under_the_id_of_a_truncated_fact_is_a_conflict() -> None:
    truncated(3, of=3)
    with pytest.raises(ConflictingDuplicateError, match="was already used with different content, since truncated"):
        ledger.append(draft(1, object_json={"quantity": 13}))
    assert Boundary.objects.get().next_offset == 3


def test_who_asks_for_a_truncated_fact_hears_that_it_was_appended() -> None:
    truncated(1, of=1)
    with pytest.raises(HistoryTruncatedError, match="was appended at offset 0 and has been truncated since"):
        ledger.look_up("order-0-released", PLANT, OFFICE)


def test_what_a_peer_sends_again_after_truncation_is_recognised() -> None:
    boundary = make_boundary(source_url="http://peer.example", source_token_file="plant")
    assert holding.hold(boundary, "me")

    def receive(*arrivals: Arrival) -> Any:
        return receiving.receive(boundary.pk, arrivals, cursor=-1, holder="me")

    receive(*(Arrival(number, ledger.prepare(draft(number))) for number in range(3)))
    age(3)
    assert ledger.truncate(PLANT, OFFICE, by="ada").removed == 3
    received = receive(Arrival(0, ledger.prepare(draft(0))), Arrival(3, ledger.prepare(draft(1))))
    assert (received.new, received.frontier, received.trouble) == (0, 3, None)
    received = receive(Arrival(4, ledger.prepare(draft(2, object_json=0))))
    assert received.trouble is not None
    assert "has arrived before with different content" in received.trouble.message
    assert not ForwardedFact.objects.exists()


def test_what_a_rebuilt_peer_has_at_offsets_of_truncated_facts_is_an_alarm(script: Script) -> None:
    script.pages = [page(*((number, draft(number)) for number in range(6)))]
    run("forward", "--drain")
    age(4)
    assert ledger.truncate(PLANT, OFFICE, by="ada").removed == 4
    script.confirmed.clear()
    script.pages = [page((1, draft(1)), (2, draft(7)), cursor=0)]
    with pytest.raises(SystemExit):
        run("forward", "--drain")
    told = "the message 'order-7-released' comes at offset 2, where 'order-2-released' has arrived before"
    assert (Boundary.objects.get().alarm, script.confirmed) == (told, [1])


@pytest.mark.parametrize("zones", [("Dock", "Depot"), (PLANT, OFFICE)], ids=["the first", "one of several"])
def test_an_append_that_meets_a_truncation_half_way_is_recognised_too(zones: tuple[str, str]) -> None:
    ends = {"from_zone": zones[0], "to_zone": zones[1]}
    make_boundary(*zones)
    ledger.append_many(draft(number, **ends) for number in range(4))
    run("forward", "--drain")
    if zones == (PLANT, OFFICE):  # from then on appends look at what is remembered
        age(1)
        ledger.truncate(*zones, by="ada")
        assert ledger.append(draft(0, **ends)).is_duplicate
    age(4)
    is_removed, may_commit, results = threading.Event(), threading.Event(), list[Any]()

    def remove() -> None:
        with transaction.atomic():
            ledger.truncate(*zones, by="ada")
            is_removed.set()
            assert may_commit.wait(LIMIT)
        connection.close()

    def repeat() -> None:
        results.append(ledger.append(draft(1, **ends)))
        connection.close()

    remover, repeater = threading.Thread(target=remove), threading.Thread(target=repeat)
    remover.start()
    assert is_removed.wait(LIMIT)
    repeater.start()
    if connection.vendor == "postgresql":
        eventually(_somebody_waits, "the append waits for the truncation")
    may_commit.set()
    for thread in (remover, repeater):
        thread.join(LIMIT)
    assert results == [Appended(1, "order-1-released", is_duplicate=True)]
    ledger.release_connection()


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize(("said", "days"), [([], 60), (["--dedupe-days", "5"], 5)])
def test_ids_are_forgotten_when_their_time_is_over(said: list[str], days: int) -> None:
    truncated(2, of=2)
    if said:
        run("boundary", "limit", PLANT, OFFICE, *said, "--reason", "r")
    assert ledger.forget() == 0
    RememberedMessage.objects.filter(offset=0).update(truncated_at=Now() - timedelta(days=days, minutes=1))
    RememberedMessage.objects.filter(offset=1).update(truncated_at=Now() - timedelta(days=days, minutes=-1))
    [forget] = [chore for chore in maintenance.all_chores(30) if chore.name == "message_ids_forgotten"]
    assert forget.run() == 1
    assert [one.is_duplicate for one in again(draft(0), draft(1))] == [False, True]


def test_for_how_long_ids_are_remembered_is_set_and_told() -> None:
    make_boundary()
    [told] = ask("boundary", "list")
    assert told["dedupe_days"] is None
    assert "remembered for 60 more" in run("boundary", "limit", PLANT, OFFICE, "--keep-days", "30", "--reason", "r")
    assert ask("boundary", "limit", PLANT, OFFICE, "--dedupe-days", "7", "--reason", "r")["dedupe_days"] == 7
    assert ask("boundary", "limit", PLANT, OFFICE, "--dedupe-days", "0", "--reason", "r")["dedupe_days"] is None
    provisioning.create_boundary(OFFICE, PLANT, by="tests", dedupe_days=3)


def test_truncation_and_appends_work_on_rows_that_no_id_is_remembered_of() -> None:
    """As after an upgrade: what was truncated before is not known, and is a new fact."""
    truncated(1, of=1)
    with append_only_lifted():
        RememberedMessage.objects.all().delete()
    assert ledger.append(draft(0)).offset == 1
