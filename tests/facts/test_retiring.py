"""Consumers, boundaries and zones are retired: nothing depends on them any more, and what they were stays readable."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db.models.functions import Now

from ergon_site.access.models import AuditEntry
from ergon_site.dashboard import facts
from ergon_site.gauges import Gauges
from facts import ledger, provisioning, retiring
from facts.core.errors import FactError, ProvisioningError, UnknownBoundaryError, UnknownConsumerError
from facts.ledger import holding
from facts.models import Boundary, Consumer, Fact, Zone
from facts.reads import health
from tests.commands import ask, next_event, run, running
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.test_truncating import age, fill, offsets
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WHY = {"by": "ada", "reason": "the site is closed"}
SAID = ["--reason", "the site is closed"]
FOR_GOOD = [*SAID, "--yes"]


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return str(caught.value)


def labels(name: str) -> list[dict[str, str]]:
    return [sample.labels for family in Gauges().collect() if family.name == name for sample in family.samples]


def test_a_consumer_that_holds_truncation_is_told_of_and_retired() -> None:
    fill(5)
    age(5)
    told = [one.text for one in facts.findings() if one.check == "consumers of facts"]
    assert any(text.startswith("erp: holds back truncation: facts are ") for text in told)
    hints = [one.hint for one in facts.findings() if one.check == "consumers of facts"]
    assert any("consumer retire" in hint for hint in hints)
    concern = next(one for one in facts.items(health.of_boundaries()) if "holds back truncation" in one.title)
    assert str(concern.shown.address).endswith(f"/consumer/{Consumer.objects.get().pk}/change/")
    assert ledger.truncate(PLANT, OFFICE, by="ada").held_back_by == ["consumer erp"]
    assert ask("consumer", "retire", "erp", *FOR_GOOD)["retired_at"]
    assert ledger.truncate(PLANT, OFFICE, by="ada").removed == 5
    assert list(facts.items(health.of_boundaries())) == []
    assert labels("bsfg_consumer_backlog") == []
    entry = AuditEntry.objects.get(action="consumer.retire")
    assert (entry.target, entry.reason, entry.before) == (
        "consumer erp",
        "the site is closed",
        {"boundary": f"{PLANT} → {OFFICE}", "cursor": -1},
    )


def test_nobody_reads_as_a_retired_consumer() -> None:
    fill(1)
    retiring.retire_consumer("erp", **WHY)
    for verb in (lambda: ledger.fetch("erp"), lambda: ledger.confirm("erp", 0)):
        with pytest.raises(UnknownConsumerError, match="was retired"):
            verb()
    assert "was retired" in refused("consumer", "retire", "erp", *FOR_GOOD)
    assert "choose another name" in refused("consumer", "create", "erp", "--boundary", PLANT, OFFICE)
    assert "retired" in run("consumer", "list")


def test_a_consumer_that_somebody_reads_as_is_not_retired() -> None:
    fill(1)
    consumer = Consumer.objects.get()
    assert holding.hold(consumer, "host:1")
    assert "the process host:1 reads as 'erp': stop it first" in refused("consumer", "retire", "erp", *FOR_GOOD)
    holding.let_go(consumer, "host:1")
    ledger.fetch("erp")
    assert "fetched within the last 30 seconds" in refused("consumer", "retire", "erp", *FOR_GOOD)
    Consumer.objects.update(fetched_at=Now() - timedelta(seconds=31), held_by="host:1", held_until=Now())
    run("consumer", "retire", "erp", *FOR_GOOD)


def test_nothing_enters_a_retired_boundary_and_its_facts_stay_readable() -> None:
    fill(3)
    assert "consumers still read this boundary: erp; retire them first" in refused(
        "boundary", "retire", PLANT, OFFICE, *FOR_GOOD
    )
    run("consumer", "retire", "erp", *FOR_GOOD)
    assert ask("boundary", "retire", PLANT, OFFICE, *FOR_GOOD)["retired_at"]
    many: list[Any] = [draft(number) for number in range(3, 60)]
    results = [*ledger.append_many(many), *ledger.append_many(many[:2])]
    assert {type(one) for one in results} == {UnknownBoundaryError}
    with pytest.raises(UnknownBoundaryError, match="from 'Plant A' to 'Enterprise' was retired"):
        ledger.append(draft(3))
    assert Boundary.objects.get().next_offset == 3
    assert ledger.look_up("order-1-released", PLANT, OFFICE).offset == 1
    for arguments in (
        ("boundary", "retire", PLANT, OFFICE, *FOR_GOOD),
        ("consumer", "create", "late", "--boundary", PLANT, OFFICE),
        ("forward", f"{PLANT}->{OFFICE}", "--drain"),
        ("boundary", "close", PLANT, OFFICE, *SAID),
        ("boundary", "open", PLANT, OFFICE, *SAID),
    ):
        assert "was retired" in refused(*arguments)
    assert labels("bsfg_gate_state") == []
    assert "retired" in run("boundary", "list")
    assert AuditEntry.objects.get(action="boundary.retire").reason == "the site is closed"


def test_a_retired_boundary_is_truncated_by_age_alone() -> None:
    make_boundary()
    ledger.append_many(draft(number) for number in range(4))
    age(3)
    assert ledger.truncate(PLANT, OFFICE, by="ada").held_back_by == ["the forward buffer"]
    retiring.retire_boundary(PLANT, OFFICE, **WHY)
    assert ledger.truncate(PLANT, OFFICE, by="ada").removed == 3
    assert offsets(Fact) == [3]


def test_whoever_hands_over_lets_go_of_a_retired_boundary_and_takes_it_up_when_it_is_back() -> None:
    make_boundary()
    with running("forward", "--json") as forwarder:
        eventually(lambda: Boundary.objects.get().held_by is not None, "it is served")
        retiring.retire_boundary(PLANT, OFFICE, **WHY)
        assert next_event(forwarder, "retired")["boundary"] == f"{PLANT} → {OFFICE}"
        eventually(lambda: Boundary.objects.get().held_by is None, "nobody serves it")
        provisioning.create_boundary(PLANT, OFFICE, by="ada", reason="open again")
        assert ledger.append(draft(1)).offset == 0
        assert next_event(forwarder, "handed_over")["frontier"] == 0


def test_a_boundary_is_made_anew_with_its_offsets() -> None:
    make_boundary(row_ceiling=5)
    ledger.append(draft(1))
    retiring.retire_boundary(PLANT, OFFICE, **WHY)
    with pytest.raises(ProvisioningError, match="its facts are appended here"):
        provisioning.create_boundary(
            PLANT, OFFICE, by="ada", source_url="http://peer.example", source_token_file="plant"
        )
    made = provisioning.create_boundary(PLANT, OFFICE, by="ada", row_ceiling=9)
    assert (made.is_retired, made.row_ceiling, made.next_offset) == (False, 9, 1)
    assert ledger.append(draft(2)).offset == 1


def test_a_zone_is_retired_when_no_boundary_leads_from_it_or_to_it() -> None:
    make_boundary()
    assert f"boundaries still lead from this zone or to it: {PLANT} → {OFFICE}" in refused(
        "zone", "retire", OFFICE, *FOR_GOOD
    )
    assert "this deployment is the zone 'local'" in refused("zone", "retire", "local", *FOR_GOOD)
    assert "there is no zone named 'Mars'" in refused("zone", "retire", "Mars", *FOR_GOOD)
    run("boundary", "retire", PLANT, OFFICE, *FOR_GOOD)
    assert ask("zone", "retire", OFFICE, *FOR_GOOD)["name"] == OFFICE
    assert "was retired already" in refused("zone", "retire", OFFICE, *FOR_GOOD)
    assert "the zone 'Enterprise' was retired" in refused("boundary", "create", PLANT, OFFICE)
    assert "retired" in run("zone", "list")
    run("zone", "create", OFFICE)
    run("boundary", "create", PLANT, OFFICE)
    assert not Zone.objects.get(name=OFFICE).is_retired
    actions = AuditEntry.objects.filter(target=f"zone {OFFICE}").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["zone.create", "zone.retire", "zone.create"]


def test_every_refusal_leaves_things_as_they_are() -> None:
    fill(1)
    for verb in (
        lambda: retiring.retire_boundary(PLANT, OFFICE, **WHY),
        lambda: retiring.retire_zone(PLANT, **WHY),
        lambda: retiring.retire_zone("a\x00b", **WHY),
        lambda: retiring.retire_consumer("nobody", **WHY),
    ):
        with pytest.raises(FactError):
            verb()
    assert not AuditEntry.objects.filter(action__endswith=".retire").exists()
