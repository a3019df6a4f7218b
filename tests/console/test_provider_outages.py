"""Outages of providers on the dashboard: accounts' breakers are causes, many breakers of a provider are one item."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engines import transactions
from engines.models import DeadLetter
from ergon_site.access.database.clock import database_time
from ergon_site.dashboard import reading
from providers import BreakerPolicy, calls
from providers.core.exchange import Who
from providers.models import Gate
from tests.console import records
from tests.console.test_attention import DOWN, ONCE, QUERY_BUDGET, text
from tests.factories import make_pipeline
from tests.providers.scripted_providers import context, scripted

pytestmark = pytest.mark.django_db

TRIPS = BreakerPolicy(failure_threshold=2, open_cooldown_seconds=3600)


def fail_calls(tenant_id: str, uids: list[str], **attributes: Any) -> None:
    provider = scripted(DOWN, retry_policy=ONCE, breaker_policy=TRIPS, **attributes)
    for uid in uids:
        provider.execute(tenant_id=tenant_id, operation="snapshot", payload={}, context=context(correlation_id=uid))


def letters_and_waiting(count: int) -> tuple[list[DeadLetter], list[str]]:
    orders = make_pipeline("orders")
    make_pipeline("later")
    records.make_worker("orders", "later")
    letters = [records.fail(orders, {}, records.failure("no route")) for _ in range(count)]
    return letters, [transactions.submit("later", {}).id for _ in range(count)]


def shut_out_tenants(count: int, **attributes: Any) -> None:
    """For each tenant a dead letter and a transaction that waits, whose calls have failed."""
    letters, waiting = letters_and_waiting(count)
    for number, (letter, uid) in enumerate(zip(letters, waiting, strict=True)):
        fail_calls(f"tenant-{number:02}", [letter.uid, uid], **attributes)


def test_the_breaker_of_an_account_is_the_cause_of_what_its_tenants_cannot_do(
    client: Client, hire: Callable[[str], User]
) -> None:
    shut_out_tenants(3, breaker_scope="account")
    client.force_login(hire("lead"))
    page = text(client)
    assert re.search(r"critical rank of all tenants: breaker open since \d\d:\d\d : 3 dead letters, 3 waiting", page), (
        page
    )
    assert "1 item needs attention" in page
    gate = Gate.objects.get(tenant_id="*")
    assert f"/admin/providers/gate/{gate.pk}/reset/?from=dashboard" in client.get("/admin/").content.decode()
    # A tenant's breaker that is open as well stands under that of its account.
    now = database_time().timestamp()
    Gate.objects.filter(tenant_id="tenant-01").update(state="open", open_until=now + 3600, turned_at=now)
    page = text(client)
    assert "1 item needs attention" in page
    assert page.index("rank of all tenants: breaker open") < page.index("rank rank_snapshot: breaker open")


def test_many_breakers_of_a_provider_are_one_item_with_the_consequences_of_all(
    client: Client, hire: Callable[[str], User]
) -> None:
    shut_out_tenants(14)
    client.force_login(hire("lead"))
    page, markup = text(client), client.get("/admin/").content.decode()
    told = r"critical rank: 14 breakers open since \d\d:\d\d : 14 dead letters, 14 waiting"
    assert re.search(told, page), page
    assert "1 item needs attention" in page
    assert "Of tenant-00, tenant-01, tenant-02, tenant-03, tenant-04 and 9 more." in page
    address = "/admin/providers/gate/?provider=rank&amp;breaker=open"
    assert address in markup
    assert client.get(address.replace("&amp;", "&")).content.decode().count("tenant-") >= 14
    with CaptureQueriesContext(connection) as queries:
        client.get("/admin/live/")
    assert len(queries) <= QUERY_BUDGET
    # Two are told apart, each with its own button; and one that somebody has forced is known by whom.
    Gate.objects.exclude(tenant_id__in=["tenant-00", "tenant-01", "tenant-02"]).update(state="closed", open_until=None)
    calls.force_open(Who("tenant-02", "rank", "rank_snapshot"), by="ada", reason="moving")
    page, markup = text(client), client.get("/admin/").content.decode()
    assert page.count("rank rank_snapshot: breaker open since") == 2
    assert "rank rank_snapshot: forced open by ada" in page
    assert markup.count(">Reset breaker</button>") == 3


def test_breakers_of_many_accounts_of_a_provider_are_one_item(client: Client, hire: Callable[[str], User]) -> None:
    letters, waiting = letters_and_waiting(4)
    for number in range(4):
        name = f"firm-{number}"
        uids = [letters[number].uid, waiting[number]]
        fail_calls(f"tenant-{number}", uids, breaker_scope="account", account_of=lambda _self, _tenant, name=name: name)
    client.force_login(hire("lead"))
    page = text(client)
    assert re.search(r"critical rank: 4 accounts' breakers open since \d\d:\d\d : 4 dead letters, 4 waiting", page), (
        page
    )
    assert "Of firm-0, firm-1, firm-2, firm-3." in page


def test_an_acknowledged_outage_stays_folded_while_its_breakers_close_and_comes_back_with_another(
    client: Client, hire: Callable[[str], User]
) -> None:
    shut_out_tenants(5)
    client.force_login(hire("operator"))
    sent = {"_form_submitted": "on", "reason": "we know", "hours": "4"}
    client.post("/admin/attention/acknowledge/?key=provider:rank:breakers", sent)
    for recovered in ("tenant-00", "tenant-04"):
        calls.reset(Who(recovered, "rank", "rank_snapshot"), by="ada", reason="back")
        assert "1 acknowledged" in text(client)
    # Two are items of their own, under the word that was given on all; their letters are without a cause again.
    calls.reset(Who("tenant-01", "rank", "rank_snapshot"), by="ada", reason="back")
    assert "2 acknowledged" in text(client)
    withdraw = 'hx-get="/admin/attention/withdraw/?key=provider%3Arank%3Abreakers"'
    assert client.get("/admin/").content.decode().count(withdraw) == 2
    fail_calls("tenant-02", ["other"] * 2)
    assert "2 acknowledged" in text(client)
    # A breaker that opens once more is another one.
    fail_calls("tenant-04", ["other"] * 2)
    assert "acknowledged" not in text(client)


def test_of_very_many_breakers_some_are_read_and_the_item_says_so() -> None:
    now = database_time()
    Gate.objects.bulk_create(
        Gate(
            tenant_id=f"tenant-{number}",
            provider_name="rank",
            capability="rank_snapshot",
            state="open",
            open_until=(now + timedelta(hours=1)).timestamp(),
        )
        for number in range(250)
    )
    found = reading.read(now, is_administrator=False)
    (entry,) = found.board.entries
    assert entry.item.title == "rank: 200+ breakers open"
    assert (entry.is_capped, found.more) == (True, "+")
