"""Throttles count callers by an address that they cannot choose, in memory that they cannot fill."""

from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from ergon_site.access.api import throttling
from tests.processes import Site, serve

MIB = 1024 * 1024
WRONG = {"Authorization": "Bearer ergon_wrong_token"}
PROXY, CALLER = "10.0.0.1", "192.0.2.7"


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    # At the real rate, how many calls it takes would depend on how fast this machine is.
    monkeypatch.setattr(throttling, "WRONG_TOKENS_PER_SECOND", 0.01)
    throttling.forget()


def guess(connected: str, forwarded: str) -> int:
    headers = {**WRONG, "X-Forwarded-For": forwarded}
    return Client(REMOTE_ADDR=connected).get("/api/v1/client", headers=headers).status_code


@pytest.mark.django_db
@pytest.mark.once
def test_a_guesser_is_throttled_whatever_it_says_of_its_address() -> None:
    answers = [guess(CALLER, f"203.0.113.{number}") for number in range(5)]
    assert answers == [401, 429, 429, 429, 429]
    assert guess("192.0.2.8", CALLER) == 401


@pytest.mark.django_db
@pytest.mark.once
@pytest.mark.parametrize("proxies", [(ip_network("10.0.0.0/8"),), ["10.0.0.0/8"]], ids=["variable", "project"])
def test_behind_a_trusted_proxy_each_caller_counts_for_itself(settings: Settings, proxies: Any) -> None:
    settings.ERGON_TRUSTED_PROXIES = proxies
    assert [guess(PROXY, CALLER), guess(PROXY, "192.0.2.8"), guess(PROXY, CALLER)] == [401, 401, 429]
    # What the caller itself has sent stands before what the proxy has added.
    assert [guess(PROXY, f"203.0.113.{number}, {CALLER}") for number in range(3)] == [429] * 3


@pytest.mark.django_db
@pytest.mark.once
def test_no_more_callers_are_remembered_than_have_room(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ERGON_TRUSTED_PROXIES = (ip_network("10.0.0.0/8"),)
    monkeypatch.setattr(throttling, "CALLERS_REMEMBERED", 10)
    for number in range(50):
        guess(PROXY, f"192.0.2.{number}")
    assert throttling.remembered() == 10


@pytest.mark.django_db(transaction=True)
@pytest.mark.once
def test_long_headers_of_strangers_do_not_fill_the_memory_of_the_server() -> None:
    with serve() as site, httpx.Client(base_url=site.url, timeout=60) as client:
        for number in range(20):
            send(client, number)
        before = memory_of(site)
        answers = [send(client, number) for number in range(20, 420)]
        grown = memory_of(site) - before
    assert set(answers) <= {401, 429}
    assert grown < 30 * MIB


def send(client: httpx.Client, number: int) -> int:
    headers = {**WRONG, "X-Forwarded-For": f"{number:06d}" * 50_000}
    return client.get("/api/v1/client", headers=headers).status_code


def memory_of(site: Site) -> int:
    """Of the largest of the server's processes."""
    return max(int(one.memory_info().rss) for one in site.processes())
