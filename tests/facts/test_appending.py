"""Append: once, in order, without gaps, whatever happens."""

import signal
import subprocess
import threading
from contextlib import closing
from typing import Any

import psutil
import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from facts import ledger
from facts.core.errors import (
    BufferFullError,
    ConflictingDuplicateError,
    FactError,
    InvalidFactError,
    UnknownBoundaryError,
    UnknownZoneError,
)
from facts.ledger import Appended, postgresql, prepare
from facts.models import Boundary, Fact
from tests import warm
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import LIMIT, database_url, environment, eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_offsets_begin_at_0_and_follow_each_other() -> None:
    make_boundary()
    assert [ledger.append(draft(number)).offset for number in range(3)] == [0, 1, 2]


def test_every_boundary_counts_for_itself() -> None:
    make_boundary()
    make_boundary(OFFICE, PLANT)
    ledger.append(draft(1))
    assert ledger.append(draft(1, from_zone=OFFICE, to_zone=PLANT)).offset == 0


def test_a_repeat_gets_the_offset_that_it_has() -> None:
    make_boundary()
    first = ledger.append(draft(1))
    ledger.append(draft(2))
    again = ledger.append(draft(1))
    assert (again.offset, again.is_duplicate, first.is_duplicate) == (first.offset, True, False)
    assert Fact.objects.count() == 2


@pytest.mark.parametrize(
    "same",
    [{"quantity": 12.0, "by": "Maria"}, {"by": "Maria", "quantity": 12}, {"by": "M\u0061ria", "quantity": 1.2e1}],
)
def test_the_same_content_is_recognised_however_it_is_written(same: Any) -> None:
    make_boundary()
    ledger.append(draft(1))
    assert ledger.append(draft(1, object_json=same)).is_duplicate


def test_a_known_id_with_another_content_is_refused_and_changes_nothing() -> None:
    make_boundary()
    ledger.append(draft(1))
    with pytest.raises(ConflictingDuplicateError, match="object_json differ"):
        ledger.append(draft(1, object_json={"quantity": 13}))
    with pytest.raises(ConflictingDuplicateError, match="not use a new one"):
        ledger.append(draft(1, produced_at_unix_ms=1741248600001))
    assert ledger.append(draft(2)).offset == 1


@pytest.mark.parametrize(("before", "now"), [(True, 1), ({"n": [0]}, {"n": [False]}), ("1", 1)])
def test_what_differs_is_named_even_where_python_sees_no_difference(before: Any, now: Any) -> None:
    make_boundary()
    ledger.append(draft(1, object_json=before))
    with pytest.raises(ConflictingDuplicateError, match="different content: object_json differ"):
        ledger.append(draft(1, object_json=now))


def test_many_are_judged_each_on_its_own_and_in_order() -> None:
    make_boundary()
    ledger.append(draft(0))
    results = ledger.append_many(
        [draft(1), draft(0), draft(1), draft(0, object_json={}), {"envelope": {}}, draft(2, to_zone="Mars"), draft(2)]
    )
    told = [one.code if isinstance(one, FactError) else (one.offset, one.is_duplicate) for one in results]
    assert told == [
        (1, False),
        (0, True),
        (1, True),
        "conflicting_duplicate",
        "invalid_fact",
        "unknown_zone",
        (2, False),
    ]


@pytest.mark.parametrize(
    ("zones", "error"),
    [
        (("Mars", OFFICE), UnknownZoneError),
        ((PLANT, "Mars"), UnknownZoneError),
        ((OFFICE, PLANT), UnknownBoundaryError),
    ],
)
def test_where_no_boundary_leads_nothing_goes(zones: tuple[str, str], error: type[FactError]) -> None:
    make_boundary()
    with pytest.raises(error):
        ledger.append(draft(1, from_zone=zones[0], to_zone=zones[1]))


def test_inside_the_callers_transaction_it_is_kept_or_forgotten_with_it() -> None:
    make_boundary()

    def fail() -> None:
        with transaction.atomic():
            assert ledger.append(draft(1)).offset == 0
            ledger.append(draft(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ledger.append(draft(3)).offset == 0


def test_a_repeat_inside_a_transaction_does_not_end_it() -> None:
    make_boundary()
    ledger.append(draft(1))
    with transaction.atomic():
        assert ledger.append(draft(1)).is_duplicate
        assert ledger.append(draft(2)).offset == 1
    assert Fact.objects.count() == 2


@pytest.mark.parametrize("ceiling", [{"row_ceiling": 2}, {"byte_ceiling": 700}])
def test_a_full_buffer_takes_no_more_but_still_knows_what_it_has(ceiling: dict[str, Any]) -> None:
    make_boundary(**ceiling)
    ledger.append(draft(1))
    ledger.append(draft(2))
    with pytest.raises(BufferFullError, match=f"the store buffer of {PLANT} → {OFFICE} has reached its ceiling"):
        ledger.append(draft(3))
    assert ledger.append(draft(1)).offset == 0
    assert Boundary.objects.get().next_offset == 2


@pytest.mark.parametrize("statement", ["UPDATE facts_fact SET subject = 'x:y'", "DELETE FROM facts_fact"])
def test_the_database_itself_refuses_to_change_a_fact(statement: str) -> None:
    make_boundary()
    ledger.append(draft(1))
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert Fact.objects.count() == 1


def test_the_database_itself_keeps_a_boundary_that_has_facts() -> None:
    boundary = make_boundary()
    ledger.append(draft(1))
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM facts_boundary WHERE id = %s", [boundary.pk])
    assert Boundary.objects.count() == 1


@pytest.mark.parametrize("known", [[], [30]])
def test_many_at_once_are_kept_like_one_by_one(known: list[int]) -> None:
    make_boundary()
    for number in known:
        ledger.append(draft(number))
    results = ledger.append_many([draft(number) for number in range(100)])
    offsets = [one.offset for one in results if isinstance(one, Appended)]
    assert sorted(offsets) == list(range(100))
    assert [one.message_id for one in results if isinstance(one, Appended) and one.is_duplicate] == [
        prepare(draft(number)).message_id for number in known
    ]
    again = ledger.append_many([draft(number) for number in range(100)])
    assert all(isinstance(one, Appended) and one.is_duplicate for one in again)
    assert Boundary.objects.get().next_offset == 100


def test_many_at_once_may_go_several_ways_and_some_may_be_no_facts() -> None:
    make_boundary()
    make_boundary(OFFICE, PLANT)
    drafts = [draft(number) for number in range(120)]
    drafts[90], drafts[100] = draft(90, from_zone=OFFICE, to_zone=PLANT), {"envelope": {}}
    results = ledger.append_many(drafts)
    assert isinstance(results[100], InvalidFactError)
    offsets = [one.offset for one in results if isinstance(one, Appended)]
    assert offsets == [*range(90), 0, *range(90, 99), *range(99, 118)]
    assert sorted(Boundary.objects.values_list("next_offset", flat=True)) == [1, 118]


def test_many_at_once_fill_a_buffer_to_its_ceiling() -> None:
    make_boundary(row_ceiling=70)
    results = ledger.append_many([draft(number) for number in range(100)])
    assert [one.offset for one in results if isinstance(one, Appended)] == list(range(70))
    assert all(isinstance(one, BufferFullError) for one in results[70:])
    assert (Fact.objects.count(), Boundary.objects.get().next_offset) == (70, 70)


def test_many_at_once_in_a_transaction_that_is_undone_leave_nothing() -> None:
    make_boundary()
    with transaction.atomic():
        ledger.append_many([draft(number) for number in range(100)])
        assert Fact.objects.count() == 100
        transaction.set_rollback(True)
    assert (Fact.objects.count(), Boundary.objects.get().next_offset) == (0, 0)


@pytest.mark.postgresql
@pytest.mark.parametrize("count", [5, postgresql.COPIED_FROM])
def test_a_thread_whose_connection_was_ended_appends_again(count: int) -> None:
    make_boundary()
    told: list[Any] = []

    def append() -> None:
        ledger.append_many(draft(number) for number in range(count))
        with closing(psycopg.connect(database_url())) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.connection.info.backend_pid])
        with pytest.raises(DatabaseError):
            ledger.append_many(draft(number) for number in range(count, 2 * count))
        told.extend(ledger.append_many(draft(number) for number in range(count, 2 * count)))
        connection.close()

    thread = threading.Thread(target=append)
    thread.start()
    thread.join(LIMIT)
    assert [one.offset for one in told] == list(range(count, 2 * count))


@pytest.mark.postgresql
def test_a_producer_that_stands_still_while_it_copies_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_boundary()
    monkeypatch.setattr(postgresql, "LONGEST_COPY", 0.0)
    pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "start_new_session": True}
    with warm.start_module("tests.facts.copying", [], environment(), **pipes) as frozen:
        try:
            eventually(lambda: psutil.Process(frozen.pid).status() == psutil.STATUS_STOPPED, "it stands still")
            assert postgresql.end_frozen_copies() == 1
            assert ledger.append(draft("another")).offset == 0
            frozen.send_signal(signal.SIGCONT)
            _, errors = frozen.communicate(timeout=LIMIT)
        finally:
            frozen.kill()
    assert "terminating connection due to administrator command" in errors
    assert (Fact.objects.count(), postgresql.end_frozen_copies()) == (1, 0)


def test_threads_that_race_on_the_same_and_on_different_ids_leave_no_gap() -> None:
    make_boundary()
    barrier, offsets = threading.Barrier(8), []

    def race(mine: int) -> None:
        barrier.wait()
        for number in range(25):
            offsets.append((f"shared-{number}", ledger.append(draft(f"shared-{number}")).offset))
            offsets.append((f"{mine}-{number}", ledger.append(draft(f"{mine}-{number}")).offset))
        connection.close()

    threads = [threading.Thread(target=race, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(offsets) == 400
    assert sorted(Fact.objects.values_list("offset", flat=True)) == list(range(225))
    assert len(set(offsets)) == 225


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"message_id": ""}, "/envelope/message_id"),
        ({"message_id": "x" * 257}, "/envelope/message_id"),
        ({"message_id": 5}, "/envelope/message_id"),
        ({"to_zone": PLANT}, "/envelope/to_zone"),
        ({"produced_at_unix_ms": -1}, "/envelope/produced_at_unix_ms"),
        ({"produced_at_unix_ms": 1.5}, "/envelope/produced_at_unix_ms"),
        ({"produced_at_unix_ms": True}, "/envelope/produced_at_unix_ms"),
        ({"labels": {"a": 1}}, "/envelope/labels/a"),
        ({"labels": {str(n): "" for n in range(33)}}, "/envelope/labels"),
        ({"labels": {"a/b": "x" * 257}}, "/envelope/labels/a~1b"),
        ({"correlation_id": None}, "/envelope/correlation_id"),
        ({"unheard": 1}, "/envelope/unheard"),
        ({"fact": {"extra": 1}}, "/fact/extra"),
        ({"fact": {"subject": "no kind"}}, "/fact/subject"),
        ({"fact": {"subject": "a:b/c/d"}}, "/fact/subject"),
        ({"fact": {"predicate": "CamelCase"}}, "/fact/predicate"),
        ({"object_json": {"n": 2**53}}, ""),
        ({"object_json": {"n": 2.0**53}}, ""),
        ({"object_json": (float("nan"),)}, ""),
        ({"object_json": "\x00"}, ""),
        ({"object_json": {"bucket": "b", "key": "k", "size": 1}}, "/fact/object_json/digest"),
    ],
)
def test_what_is_no_fact_is_refused_by_the_name_of_its_fault(changes: dict[str, Any], pointer: str) -> None:
    make_boundary()
    with pytest.raises(InvalidFactError) as caught:
        ledger.append(draft(1, **changes))
    assert caught.value.pointer == pointer
    assert Boundary.objects.get().next_offset == 0
