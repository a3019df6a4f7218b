"""`forward --drain` ends when nothing is left, whatever other processes have died of before."""

from datetime import timedelta

import pytest

from facts import ledger
from facts.core import gates
from facts.forwarding import hand_over, running
from facts.forwarding.sources import PeerSource
from facts.ledger import holding
from facts.models import Boundary, ForwardedFact
from tests.commands import run
from tests.facts.drafts import draft, make_boundary
from tests.facts.peers import Script, page

pytestmark = pytest.mark.django_db(transaction=True)


class DyingError(Exception):
    """As if the process had ended here."""


class DyingSource(PeerSource):
    """Ends the process before the peer is told what has arrived."""

    def confirm(self, offset: int) -> None:
        raise DyingError


def arrived() -> list[int]:
    return list(ForwardedFact.objects.order_by("offset").values_list("offset", flat=True))


def test_facts_that_had_arrived_when_a_process_died_do_not_end_a_drain(script: Script) -> None:
    kept = page((0, draft(0)), (1, draft(1)))
    script.pages = [kept, kept, page((2, draft(2)), cursor=1)]
    boundary = Boundary.objects.select_related("from_zone", "to_zone").get()
    assert holding.hold(boundary, "a process that dies")
    with pytest.raises(DyingError):
        hand_over(boundary, DyingSource(boundary), holder="a process that dies")
    assert (arrived(), script.confirmed) == ([0, 1], [])
    holding.let_go(boundary, "a process that dies")
    run("forward", "--drain")
    assert (arrived(), script.confirmed) == ([0, 1, 2], [1, 2])


def test_a_drain_waits_for_the_term_of_a_process_that_has_died() -> None:
    boundary = make_boundary()
    ledger.append(draft(1))
    assert holding.hold(boundary, "a process that has died", term=timedelta(seconds=2))
    run("forward", "--drain")
    boundary.refresh_from_db()
    assert (arrived(), boundary.held_by) == ([0], None)


def test_a_drain_gives_up_on_a_boundary_that_a_living_process_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "PATIENCE", 2.0)  # a whole term is long
    boundary = make_boundary()
    ledger.append(draft(1))
    assert holding.hold(boundary, "a process that lives", term=timedelta(minutes=9))
    with pytest.raises(SystemExit) as ended:
        run("forward", "--drain")
    assert (ended.value.code, arrived()) == (1, [])
    assert "held by another process: a process that lives" in capsys.readouterr().err


def test_an_error_that_nobody_expected_counts_as_a_failed_handoff(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Boundary) -> None:
        msg = "nobody thought of this"
        raise LookupError(msg)

    # What nobody has thought of cannot be brought about in any other way.
    monkeypatch.setattr(running, "source_of", fail)
    boundary = make_boundary()
    with pytest.raises(SystemExit):
        run("forward", "--drain")
    boundary.refresh_from_db()
    assert (boundary.gate, boundary.failures) == ("autonomous", gates.FAILURES)
    assert boundary.gate_reason == "LookupError: nobody thought of this"
