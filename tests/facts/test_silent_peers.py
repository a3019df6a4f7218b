"""A peer that answers nothing, or too slowly to be an answer: known within seconds, and told as what it is."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db.models.functions import Now

from ergon_site.dashboard import facts
from ergon_site.gauges import Gauges
from facts.core import gates, watching
from facts.ledger import gating
from facts.models import Boundary, ForwardedFact
from facts.reads import health
from tests.commands import run, running
from tests.facts.drafts import draft, make_boundary
from tests.facts.peers import Script, keep_token, page, peer
from tests.faults.relay import Relay, relay_to
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)


class Steady(Script):
    """Has all facts up to its newest one, however often it is asked."""

    def answer(self, path: str) -> Any:
        asked = parse_qs(urlsplit(path).query).get("limit")
        return super().answer(path) if asked is None else self.page(int(asked[0]))

    def page(self, limit: int) -> Any:
        cursor = max([-1, *self.confirmed])
        offsets = range(cursor + 1, min(cursor + limit, self.newest) + 1)
        return page(*((offset, draft(offset)) for offset in offsets), cursor=cursor)


@pytest.fixture
def link() -> Iterator[tuple[Script, Relay]]:
    """A peer, and a boundary that is pulled from it over a stretch of network."""
    script = Steady()
    with peer(script) as url, relay_to(url) as relay:
        address = relay.address.replace("//@", "//")
        make_boundary(source_url=address, source_token_file=keep_token(), source_consumer="office")
        yield script, relay


def now() -> Boundary:
    return Boundary.objects.get()


def lag() -> float:
    """As it is measured."""
    [family] = [one for one in Gauges().collect() if one.name == "bsfg_replication_lag_seconds"]
    return family.samples[0].value


def prove_a_silent_link(link: tuple[Script, Relay], **variables: str) -> None:
    script, relay = link
    script.newest = 0
    with running("forward", "--json", **variables):
        eventually(lambda: now().frontier == 0 and now().heard_at is not None, "the first fact has come")
        assert (now().gate, lag()) == ("normal", 0.0)
        relay.silence()
        eventually(lambda: now().gate == "autonomous", "the gate is closed")
        eventually(lambda: lag() > watching.UNHEARD, "nobody claims to know that nothing waits there")
        assert "does not answer" in now().gate_reason
        before = lag()
        eventually(lambda: lag() > before + 1, "the lag grows by the clock")
        told = " ".join(one.title + one.detail for one in facts.items(health.of_boundaries()))
        assert "The peer has not responded for" in told
        script.newest = 1
        relay.resume()
        eventually(lambda: now().frontier == 1 and now().gate == "normal", "it goes on by itself")
        eventually(lambda: lag() == 0.0, "and everything is there")


def test_a_link_that_swallows_packets_closes_the_gate_and_lets_the_lag_grow(link: tuple[Script, Relay]) -> None:
    prove_a_silent_link(link, ERGON_HANDOFF_TIMEOUT="1")


@pytest.mark.soak
def test_the_same_with_the_usual_patience_takes_half_a_minute(link: tuple[Script, Relay]) -> None:
    prove_a_silent_link(link)


@contextmanager
def full() -> Iterator[str]:
    """An address whose host lets no connection in and refuses none: what is sent there is dropped."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def fails(url: str) -> Boundary:
    make_boundary(source_url=url, source_token_file=keep_token(), source_consumer="office")
    with running("forward", "--drain", ERGON_HANDOFF_TIMEOUT="0.3") as forwarder:
        assert forwarder.wait(60) == 1
    return now()


@pytest.mark.once
def test_a_host_that_lets_nobody_connect_is_given_up_within_the_time_of_a_try() -> None:
    with full() as url:
        assert "does not answer" in fails(url).gate_reason


class Trickle(Script):
    """Answers a byte at a time, for ever."""

    def answer(self, path: str) -> Any:
        return self

    def __iter__(self) -> Iterator[bytes]:
        while True:
            time.sleep(0.1)
            yield b" "


@pytest.mark.once
def test_a_peer_that_sends_a_byte_now_and_then_is_given_up_as_well() -> None:
    with peer(Trickle()) as url:
        assert "does not answer" in fails(url).gate_reason


class SlowLink(Steady):
    """Takes a while for each fact that it is asked for."""

    def page(self, limit: int) -> Any:
        time.sleep(0.005 * limit)
        return super().page(limit)


@pytest.mark.once
def test_over_a_slow_link_fewer_facts_are_asked_for_until_they_come_in_time() -> None:
    script = SlowLink()
    script.newest = 99
    with peer(script) as url:
        make_boundary(source_url=url, source_token_file=keep_token(), source_consumer="office")
        with running("forward", "--drain", ERGON_HANDOFF_TIMEOUT="1") as forwarder:
            assert forwarder.wait(60) == 0
    assert ForwardedFact.objects.count() == 100


def silent_for(seconds: float) -> None:
    Boundary.objects.update(heard_at=Now() - timedelta(seconds=seconds), source_head=0, frontier=0)


def test_one_failure_closes_a_gate_that_has_seen_no_success_for_long_enough(script: Script) -> None:
    silent_for(gates.SILENCE - 20)
    gating.note_failure(now().pk, "the peer does not answer")
    assert (now().gate, now().failures) == ("normal", 1)
    silent_for(gates.SILENCE)
    gating.note_failure(now().pk, "the peer does not answer")
    assert (now().gate, now().failures, now().gate_by) == ("autonomous", 2, "")
    run("forward", "--drain")
    assert (now().gate, now().failures) == ("normal", 0)


def test_a_boundary_of_this_database_is_never_silent() -> None:
    boundary = make_boundary()
    Boundary.objects.update(created_at=Now() - timedelta(days=1))
    gating.note_failure(boundary.pk, "out of luck")
    gating.note_success(boundary.pk, head=None)
    assert (now().gate, now().heard_at) == ("normal", None)
    assert health.of_boundaries()[0].unheard == 0


def test_while_nobody_asks_the_peer_the_lag_grows_by_the_clock(script: Script) -> None:
    silent_for(100)
    [one] = health.of_boundaries()
    assert one.flow.backlog == 0
    assert 100 <= one.flow.lag < 100 + 60
    assert 100 <= lag() < 100 + 60
    silent_for(1)
    assert lag() == 0.0
