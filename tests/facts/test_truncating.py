"""Truncation: what is old and what everybody has goes; nothing else, ever."""

import logging
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db import connection
from django.db.models import Sum
from django.db.models.functions import Length

from ergon_site.access.models import AuditEntry
from ergon_site.dashboard import facts
from facts import ledger, provisioning
from facts.core.errors import HistoryTruncatedError
from facts.ledger import reading, truncating
from facts.models import Boundary, Consumer, Fact, ForwardedFact
from facts.reads import health
from tests.commands import ask, run
from tests.database import append_only_lifted
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.peers import Script, page

pytestmark = pytest.mark.django_db(transaction=True)


def age(below: int) -> None:
    """Make the facts below an offset a year old."""
    older = "written_at - interval '1 year'" if connection.vendor == "postgresql" else "'2020-01-01 00:00:00'"
    with append_only_lifted(), connection.cursor() as cursor:
        for table in ("facts_fact", "facts_forwardedfact"):
            cursor.execute(f'UPDATE {table} SET written_at = {older} WHERE "offset" < {below}')


def fill(count: int) -> None:
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    ledger.append_many(draft(number) for number in range(count))
    run("forward", "--drain")


def offsets(model: type[Fact] | type[ForwardedFact] = Fact) -> list[int]:
    return list(model.objects.order_by("offset").values_list("offset", flat=True))


def test_what_is_old_and_what_all_have_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncating, "AT_ONCE", 2)  # so that it takes several batches
    fill(10)
    age(7)
    ledger.confirm("erp", 8)
    done = ledger.truncate(PLANT, OFFICE, by="ada", reason="the disk")
    assert (done.removed, done.first_offset, done.held_back) == (7, 7, 0)
    assert offsets() == offsets(ForwardedFact) == [7, 8, 9]
    boundary = Boundary.objects.get()
    assert boundary.stored_bytes == Fact.objects.aggregate(size=Sum(Length("content")))["size"]
    entry = AuditEntry.objects.get(action="boundary.truncate")
    assert (entry.actor, entry.reason, entry.after) == ("ada", "the disk", {"first_offset": 7})
    assert [offset for offset, _ in ledger.fetch("erp").facts] == [9]
    with pytest.raises(HistoryTruncatedError):
        provisioning.create_consumer("late", PLANT, OFFICE, start=3, by="tests")


def worries() -> list[str]:
    """What the doctor says of boundaries."""
    return [one.text for one in facts.findings() if one.check == "boundaries"]


def test_what_is_over_its_time_and_held_back_is_told_without_a_truncation() -> None:
    fill(10)
    age(4)
    told = "Plant A → Enterprise: facts are "
    held_back = [text for text in worries() if "past their retention" in text]
    assert [text.startswith(told) for text in held_back] == [True]
    assert held_back[0].endswith("held back by consumer erp")
    assert any("past their retention" in one.title + one.detail for one in facts.items(health.of_boundaries()))
    ledger.confirm("erp", 3)
    assert not any("past their retention" in text for text in worries()), "what is left is young"


def test_facts_that_were_never_handed_over_are_held_back_by_the_forward_buffer() -> None:
    make_boundary()
    ledger.append_many(draft(number) for number in range(3))
    age(1)
    assert any(text.endswith("held back by the forward buffer") for text in worries())
    run("forward", "--drain")
    assert not any("past their retention" in text for text in worries())


def test_facts_of_a_peer_are_held_back_by_readers_alone() -> None:
    fill(3)
    age(3)
    Boundary.objects.update(source_url="https://peer.example")
    assert any(text.endswith("held back by consumer erp") for text in worries())
    Consumer.objects.all().delete()
    assert not any("past their retention" in text for text in worries())


def test_who_asks_for_removed_facts_of_a_peer_is_told(script: Script) -> None:
    script.pages = [page(*((number, draft(number)) for number in range(6)))]
    run("forward", "--drain")
    age(4)
    ledger.truncate(PLANT, OFFICE, by="ada")
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    with pytest.raises(HistoryTruncatedError, match="facts before offset 4 have been removed"):
        ledger.confirm("erp", 1)
    with pytest.raises(CommandError, match="facts before offset 4 have been removed"):
        run("facts", "export", PLANT, OFFICE, "--start", "0")


@pytest.mark.parametrize("removed", [4, 6], ids=["some", "all"])
def test_an_export_does_not_pass_over_what_is_removed_meanwhile(removed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(6)
    ledger.confirm("erp", 5)
    age(removed)
    monkeypatch.setattr(reading, "MOST", 2)
    pages = iter([None, lambda: ledger.truncate(PLANT, OFFICE, by="ada")])
    after = reading.after

    def read(*asked: Any) -> Any:
        if (meanwhile := next(pages)) is not None:
            meanwhile()
        return after(*asked)

    monkeypatch.setattr(reading, "after", read)
    with pytest.raises(CommandError, match="the export is not complete"):
        run("facts", "export", PLANT, OFFICE)


def test_what_a_consumer_has_not_confirmed_stays_however_old_it_is(caplog: pytest.LogCaptureFixture) -> None:
    fill(10)
    age(10)
    ledger.confirm("erp", 3)
    with caplog.at_level(logging.WARNING):
        done = ledger.truncate(PLANT, OFFICE, by="ada")
    assert (done.removed, done.held_back, done.held_back_by) == (4, 6, ["consumer erp"])
    assert offsets() == list(range(4, 10))
    assert "retention_held_back" in caplog.text


def test_what_has_not_been_handed_over_stays_too() -> None:
    make_boundary()
    ledger.append(draft(1))
    age(1)
    done = ledger.truncate(PLANT, OFFICE, by="ada")
    assert (done.removed, done.held_back_by, offsets()) == (0, ["the forward buffer"], [0])


def test_young_facts_stay_and_a_second_time_changes_nothing() -> None:
    fill(3)
    ledger.confirm("erp", 2)
    assert ledger.truncate(PLANT, OFFICE, by="ada").removed == 0
    age(1)
    assert [ledger.truncate(PLANT, OFFICE, by="ada").removed for _ in range(2)] == [1, 0]
    assert AuditEntry.objects.filter(action="boundary.truncate").count() == 1
    assert ledger.append(draft(3)).offset == 3


def test_what_a_crash_has_left_goes_the_next_time() -> None:
    fill(3)
    Boundary.objects.update(first_offset=2)
    assert ledger.truncate(PLANT, OFFICE, by="ada").removed == 2
    assert offsets() == [2]


def test_the_command_tells_what_went_and_what_is_held_back() -> None:
    fill(4)
    age(4)
    ledger.confirm("erp", 1)
    [told] = ask("facts", "truncate", "--yes", "--reason", "the disk")
    assert (told["removed"], told["held_back"], told["held_back_by"]) == (2, 2, ["consumer erp"])
    assert "held back by consumer erp" in run("facts", "truncate", "--boundary", PLANT, OFFICE, "--reason", "again")
