"""Many clients at once over HTTP, and a server that is killed among them: no gap, no second offset, nothing half."""

import threading
import time
from collections import Counter
from typing import Any

import httpx
import pytest

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts.client import BoundaryClient
from facts.core.errors import FactError
from facts.models import Boundary, Fact
from tests.facts.deployments import serving
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary

pytestmark = pytest.mark.django_db(transaction=True)


def make_token() -> str:
    make_boundary()
    return clients.create("mes", Grant(zones=[PLANT], target_zones=[OFFICE]), by="tests").token.text


def prove_race(*, racers: int, each: int) -> None:
    token = make_token()
    barrier, statuses, offsets = threading.Barrier(racers), Counter[int](), set[tuple[str, int]]()
    lock = threading.Lock()

    def race(mine: int, url: str) -> None:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=120) as client:
            barrier.wait()
            for number in range(each):
                for name in (f"shared-{number}", f"{mine}-{number}"):
                    answer = client.post("/api/v1/facts", json=draft(name))
                    with lock:
                        statuses[answer.status_code] += 1
                        offsets.add((name, answer.json()["offset"]))

    with serving() as server:
        threads = [threading.Thread(target=race, args=[number, server.url]) for number in range(racers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    new, repeated = each + racers * each, (racers - 1) * each
    assert statuses == {201: new, 200: repeated}
    assert len(offsets) == new
    assert list(Fact.objects.order_by("offset").values_list("offset", flat=True)) == list(range(new))
    assert Boundary.objects.get().next_offset == new


def prove_kills(*, kills: int, producers: int) -> None:
    token = make_token()
    confirmed: dict[str, int] = {}
    is_over = threading.Event()

    def produce(mine: int, url: str) -> None:
        number = 0
        with BoundaryClient(url, token) as client:
            while not is_over.is_set():
                message = draft(f"{mine}-{number}")
                try:
                    offset = client.append(message).offset
                except FactError as error:
                    assert error.may_pass, error  # noqa: PT017
                    time.sleep(0.05)
                else:
                    confirmed[message["envelope"]["message_id"]] = offset
                    number += 1

    with serving() as server:
        threads = [threading.Thread(target=produce, args=[n, server.url], daemon=True) for n in range(producers)]
        for thread in threads:
            thread.start()
        _run_for_a_while(confirmed)
        server.kill()
    for _ in range(kills - 1):
        with serving(server.port) as again:
            _run_for_a_while(confirmed)
            again.kill()
    with serving(server.port):
        _run_for_a_while(confirmed)
        is_over.set()
        for thread in threads:
            thread.join(60)
    _check_log(confirmed)


def _run_for_a_while(confirmed: dict[str, int]) -> None:
    wanted, until = len(confirmed) + 100, time.monotonic() + 60
    while len(confirmed) < wanted:
        assert time.monotonic() < until, "nothing is confirmed any more"
        time.sleep(0.02)


def _check_log(confirmed: dict[str, int]) -> None:
    rows: Any = Fact.objects.order_by("offset").values_list("offset", "message_id", "content", "digest")
    log = list(rows)
    assert [offset for offset, *_ in log] == list(range(len(log)))
    places = {message_id: offset for offset, message_id, *_ in log}
    assert confirmed.items() <= places.items()
    boundary = Boundary.objects.get()
    assert (boundary.next_offset, boundary.stored_bytes) == (len(log), sum(len(content) for _, _, content, _ in log))


def test_clients_that_race_on_the_same_and_on_different_ids_leave_no_gap() -> None:
    prove_race(racers=32, each=10)


@pytest.mark.postgresql
def test_a_server_that_is_killed_among_appends_keeps_all_that_it_confirmed() -> None:
    prove_kills(kills=2, producers=8)


@pytest.mark.soak
def test_clients_that_race_for_long_leave_no_gap() -> None:
    prove_race(racers=32, each=500)


@pytest.mark.soak
def test_a_server_that_is_killed_over_and_over_keeps_all_that_it_confirmed() -> None:
    prove_kills(kills=25, producers=16)
