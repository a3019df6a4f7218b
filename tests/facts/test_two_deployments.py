"""Facts cross from one deployment to another, whatever is cut or killed on the way: all of them, once, in order."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from facts import ledger, provisioning
from facts.client import BoundaryClient
from facts.core.errors import FactError
from facts.models import Boundary, ForwardedFact
from tests.commands import running
from tests.facts.deployments import Deployment, Link, deployment
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.peers import keep_token
from tests.processes import LIMIT, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Deployment]:
    """The peer: the zone that the facts come from."""
    with deployment(tmp_path / "plant") as made:
        yield made


def provision(plant: Deployment, url: str) -> str:
    """Both sides of the boundary; the token of a producer at the plant."""
    *_, replicator, producer = plant.commands(
        ["zone", "create", PLANT],
        ["zone", "create", OFFICE],
        ["boundary", "create", PLANT, OFFICE],
        ["consumer", "create", "office", "--boundary", PLANT, OFFICE],
        ["create_api_client", "replicator", "--consumer", "office"],
        ["create_api_client", "mes", "--zone", PLANT, "--target-zone", OFFICE, "--consumer", "office"],
    )
    make_boundary(source_url=url, source_token_file=keep_token(replicator))
    return producer.strip()


class Load:
    """A producer that goes on whatever happens, and knows what was confirmed to it."""

    def __init__(self, url: str, token: str) -> None:
        self.confirmed: dict[str, int] = {}
        self._url, self._token = url, token
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        with BoundaryClient(self._url, self._token) as client:
            while not self._is_over.is_set():
                message = draft(number)
                try:
                    self.confirmed[message["envelope"]["message_id"]] = client.append(message).offset
                except FactError as error:
                    assert error.may_pass, error  # noqa: PT017
                    time.sleep(0.1)
                else:
                    number += 1
                    self._is_over.wait(0.005)  # the others need the machine, too


def arrived() -> list[tuple[int, str]]:
    return list(ForwardedFact.objects.order_by("offset").values_list("offset", "message_id"))


def is_complete(load: Load) -> bool:
    return Boundary.objects.get().frontier == max(load.confirmed.values())


def check(load: Load, url: str, token: str) -> None:
    """Everything that was confirmed at the plant is here, once, with its offset and in order; and the plant knows."""
    eventually(lambda: is_complete(load), "everything has arrived")
    assert arrived() == sorted((offset, message_id) for message_id, offset in load.confirmed.items())
    with BoundaryClient(url, token) as client:
        eventually(lambda: client.reader("office").cursor == max(load.confirmed.values()), "the peer was told")


def prove_a_cut(plant: Deployment, *, cuts: int, seconds: float) -> None:
    with plant.server() as server:
        link = Link(server.port)
        token = provision(plant, link.url)
        provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
        load = Load(server.url, token)
        with running("forward", "--json"):
            for _ in range(cuts):
                eventually(lambda: Boundary.objects.get().frontier >= 5, "facts arrive")
                link.cut()
                before, frontier = len(load.confirmed), Boundary.objects.get().frontier
                eventually(lambda: Boundary.objects.get().gate == "autonomous", "the gate is closed")
                eventually(lambda: len(load.confirmed) > before, "the plant works on")  # noqa: B023
                assert ledger.fetch("erp", limit=1).facts, "the office works on"
                time.sleep(seconds)
                assert Boundary.objects.get().frontier <= frontier + 1000
                link.heal()
                eventually(lambda: Boundary.objects.get().gate == "normal", "the gate is open")
            load.end()
            check(load, server.url, token)
        link.cut()


def prove_kills(plant: Deployment, *, kills: int) -> None:
    chance = random.Random(kills)  # noqa: S311
    with plant.server() as server:
        token = provision(plant, server.url)
        load = Load(server.url, token)
        eventually(lambda: len(load.confirmed) > 100, "there is something to hand over")
        for number in range(kills):
            at = Boundary.objects.get().frontier
            with running("forward", "--json") as forwarder:
                eventually(lambda: Boundary.objects.get().frontier > at, "facts arrive")  # noqa: B023
                time.sleep(chance.uniform(0, 0.3))
                forwarder.kill()
                forwarder.wait(LIMIT)
            # A dead process holds its boundary until its term is over. The last one's is waited out.
            if number < kills - 1:
                Boundary.objects.update(held_until=None)
        load.end()
        with running("forward", "--drain") as forwarder:
            assert forwarder.wait(120) == 0
        check(load, server.url, token)


@pytest.mark.postgresql
def test_a_link_that_is_cut_and_healed_loses_nothing(plant: Deployment) -> None:
    prove_a_cut(plant, cuts=1, seconds=0.5)


@pytest.mark.postgresql
def test_a_forwarder_that_is_killed_anywhere_loses_nothing_and_repeats_nothing(plant: Deployment) -> None:
    prove_kills(plant, kills=2)


@pytest.mark.soak
def test_a_link_that_is_cut_over_and_over_loses_nothing(plant: Deployment) -> None:
    prove_a_cut(plant, cuts=10, seconds=10.0)


@pytest.mark.soak
def test_a_forwarder_that_is_killed_over_and_over_loses_nothing(plant: Deployment) -> None:
    prove_kills(plant, kills=60)


@pytest.mark.postgresql
def test_of_two_forwarders_one_serves_a_boundary_and_the_other_takes_over(plant: Deployment) -> None:
    with plant.server() as server:
        token = provision(plant, server.url)
        with BoundaryClient(server.url, token) as producer, running("forward", "--json") as first:
            producer.append(draft(1))
            eventually(lambda: len(arrived()) == 1, "it has arrived")
            holder = Boundary.objects.get().held_by
            with running("forward", "--json") as second:
                assert second.stdout is not None
                assert '"held"' in second.stdout.readline()
                first.terminate()
                assert first.wait(60) == 0
                producer.append(draft(2))
                eventually(lambda: len(arrived()) == 2, "the other has taken over")
                assert Boundary.objects.get().held_by not in (holder, None)
