"""Why a transaction waits or failed: the open breaker of a provider that it calls is named, and until when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engines import transactions
from engines.models import Pipeline
from engines.reads import explain
from providers import BreakerPolicy, calls
from providers.core import errors
from providers.core.exchange import Who
from tests.api.api_clients import client_with
from tests.commands import ask
from tests.console import records
from tests.console.records import read
from tests.factories import make_pipeline
from tests.providers.scripted_providers import TENANT, WHO, scripted

pytestmark = pytest.mark.django_db(transaction=True)

BREAKER = "breaker rank/rank_snapshot open until "
WHY: dict[str, Any] = {"by": "bob", "reason": "they asked us to"}


@pytest.fixture
def orders() -> Pipeline:
    pipeline = make_pipeline("orders")
    records.make_worker("orders")
    return pipeline


def wait_for(orders: Pipeline, called_under: str | None = None, **fields: str) -> str:
    """A transaction that waits, and has called the provider before."""
    uid = transactions.submit(orders.name, {}, **fields).id
    scripted({}).ask(correlation_id=called_under or uid)
    return uid


def sentence(uid: str) -> str:
    told: str = explain.explain(uid)["sentence"]
    return told


def test_a_transaction_that_meets_an_open_breaker_says_so_and_until_when(orders: Pipeline) -> None:
    uid = wait_for(orders)
    assert sentence(uid) == "waiting: it is next"
    calls.force_open(WHO, lasting=timedelta(hours=1), **WHY)
    told = explain.explain(uid)
    (hindrance,) = told["facts"]["hindrances"]
    until = datetime.fromisoformat(hindrance["until"])
    assert told["sentence"] == f"waiting: {BREAKER}{until.astimezone(UTC):%H:%M:%S} UTC"
    assert timedelta(minutes=55) < until - datetime.now(UTC) <= timedelta(hours=1, minutes=1)
    assert TENANT not in str(told["facts"])
    calls.reset(WHO, **WHY)
    assert sentence(uid) == "waiting: it is next"


def test_a_breaker_that_opened_by_itself_is_named_too(orders: Pipeline) -> None:
    uid = wait_for(orders)
    ill = scripted(errors.from_status(503), breaker_policy=BreakerPolicy(failure_threshold=1))
    assert ill.ask().error is not None
    assert sentence(uid).startswith(f"waiting: {BREAKER}")


def test_a_breaker_that_was_forced_open_for_good_is_open_until_somebody_resets_it(orders: Pipeline) -> None:
    uid = wait_for(orders)
    calls.force_open(WHO, lasting=None, **WHY)
    assert sentence(uid) == f"waiting: {BREAKER}it is reset"


def test_a_failed_transaction_says_what_a_replay_would_meet(orders: Pipeline) -> None:
    letter = records.fail(orders, {})
    scripted({}).ask(correlation_id=letter.uid)
    calls.force_open(WHO, lasting=None, **WHY)
    assert sentence(letter.uid).endswith(
        f"its dead letter needs a decision; a replay would be blocked: {BREAKER}it is reset"
    )
    new = transactions.replay(letter.uid, by="ada", reason="let us see").id
    assert sentence(new) == f"waiting: {BREAKER}it is reset"


def test_calls_under_the_correlation_id_of_a_transaction_that_has_run_are_its_own(orders: Pipeline) -> None:
    letter = records.fail(orders, {}, correlation_id="order-7")
    scripted({}).ask(correlation_id="order-7")
    calls.force_open(WHO, lasting=None, **WHY)
    assert sentence(letter.uid).endswith(f"{BREAKER}it is reset")


@pytest.mark.parametrize("who", [Who("another", *WHO[1:]), Who(TENANT, "rank", "keyword_volume")])
def test_the_breaker_of_another_tenant_or_capability_is_not_in_the_way(orders: Pipeline, who: Who) -> None:
    uid = wait_for(orders)
    calls.force_open(who, **WHY)
    assert sentence(uid) == "waiting: it is next"


def test_what_others_called_is_not_in_the_way(orders: Pipeline) -> None:
    uid = wait_for(orders, called_under="order-7", correlation_id="order-7")
    calls.force_open(WHO, lasting=None, **WHY)
    assert sentence(uid) == "waiting: it is next"


def test_command_api_and_console_say_the_same(orders: Pipeline, browse: Client) -> None:
    uid = wait_for(orders)
    calls.force_open(WHO, lasting=None, **WHY)
    told = f"waiting: {BREAKER}it is reset"
    assert ask("explain", uid)["sentence"] == told
    assert client_with("transactions:read").get(f"/api/v1/transactions/{uid}/explain").json()["sentence"] == told
    page = f"/admin/engines/transactionrecord/{transactions.find(uid).pk}/change/"
    with CaptureQueriesContext(connection) as queries:
        assert f"W{told[1:]}" in read(browse, page)
    assert len(queries) <= 12
