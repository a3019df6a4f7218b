"""Gates of whole accounts: what one tenant learns of a provider protects all that share its account."""

import json
from collections import Counter
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.database import pooler
from ergon_site.access.database.clock import database_time
from ergon_site.dashboard import breakers, providers as dashboard
from providers import BreakerPolicy, ProviderRateLimitError, QuotaState, RetryPolicy, calls
from providers.core.errors import ProviderConnectionError, ProviderQuotaExceededError, ProviderUsageError
from providers.core.exchange import Who
from providers.database import gates, sql
from providers.models import Gate, ProviderEvent, ProviderHealthState
from providers.reads import health
from tests.api.api_clients import post
from tests.commands import run
from tests.providers.scripted_providers import TENANT, WHO, Scripted, context, scripted
from tests.providers.test_many_processes import told

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "0d3a53c2-7d0c-4f3e-8a57-4f1d5f1b7a10"
ACCOUNT = Who.of_account("rank")
ONCE = RetryPolicy(max_attempts=1)
TRIPS = BreakerPolicy(failure_threshold=2, open_cooldown_seconds=60)
ACCOUNTS = {"breaker_scope": "account", "pause_scope": "account", "breaker_policy": TRIPS, "retry_policy": ONCE}


def ask(provider: Scripted, tenant_id: str = TENANT, **about: Any) -> Any:
    return provider.execute(tenant_id=tenant_id, operation="snapshot", payload={}, context=context(**about))


def used(who: Who) -> int:
    return Gate.objects.get(**who._asdict()).used


def test_an_outage_that_tenants_see_together_opens_the_breaker_for_all_of_them() -> None:
    failing = scripted(TimeoutError(), **ACCOUNTS)
    ask(failing)
    ask(failing, OTHER)
    answering = scripted({"rank": 1}, **ACCOUNTS)
    refused = ask(answering, str(uuid4()))
    assert (refused.reason_code, answering.calls) == ("circuit_open", [])
    assert "share the account" in str(refused.error)
    assert 0 < refused.retry_after <= 60
    states = dict(Gate.objects.values_list("tenant_id", "state"))
    assert states.pop("*") == "open"
    assert set(states.values()) == {"closed"}
    assert ProviderHealthState.objects.get(tenant_id="*").breaker_state == "open"


@pytest.mark.postgresql
def test_whoever_makes_the_gate_of_an_account_holds_up_others_for_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, limits = sql.rows, []

    def look(statement: str, given: Any) -> Any:
        if statement == gates.JOIN_ACCOUNT:
            limits.extend(rows("SHOW idle_in_transaction_session_timeout", {}))
        return rows(statement, given)

    # The lock is there for a moment only, which no other process could meet.
    monkeypatch.setattr(sql, "rows", look)
    assert ask(scripted({}, **ACCOUNTS)).ok
    assert limits == [("5s",)]


def test_with_both_scopes_a_tenant_alone_is_shut_out_before_all_are() -> None:
    both = ACCOUNTS | {"breaker_scope": "both"}
    ask(scripted(TimeoutError(), **both))
    ask(scripted({"rank": 1}, **both), OTHER)  # which starts the account's count anew
    ask(scripted(TimeoutError(), **both))
    assert ask(scripted({"rank": 1}, **both)).reason_code == "circuit_open"
    assert ask(scripted({"rank": 1}, **both), OTHER).ok


def test_a_pause_that_one_tenant_is_asked_for_holds_for_all() -> None:
    ask(scripted(ProviderRateLimitError(retry_after=40), **ACCOUNTS))
    refused = ask(scripted({"rank": 1}, **ACCOUNTS), OTHER)
    assert refused.reason_code == "rate_limited"
    assert 30 < refused.retry_after <= 40
    # Whoever counts its tenants one by one does not ask the account.
    assert ask(scripted({"rank": 1}), OTHER).ok


def test_a_retry_ends_when_the_accounts_breaker_opens() -> None:
    ask(scripted(TimeoutError(), **ACCOUNTS))
    tries = scripted(TimeoutError(), **ACCOUNTS | {"retry_policy": RetryPolicy(max_attempts=5, base_delay_seconds=0)})
    result = ask(tries, OTHER)
    assert (len(tries.calls), result.reason_code) == (1, "timeout")


def test_a_quota_of_the_account_is_spent_by_all_and_stands_beside_a_tenants_own() -> None:
    calls.set_quota(ACCOUNT, limit=3, window=86400.0, by="tests")
    calls.set_quota(WHO, limit=1, window=86400.0, by="tests")
    provider = scripted({"rank": 1})  # every provider keeps to it, whatever its scopes
    assert [ask(provider).reason_code for _ in range(2)] == [None, "quota_exhausted"]
    assert [ask(provider, OTHER).reason_code for _ in range(3)] == [None, None, "quota_exhausted"]
    assert (used(ACCOUNT), used(WHO)) == (3, 1)
    assert QuotaState.objects.get(tenant_id="*").used_count == 3
    assert QuotaState.objects.get(tenant_id="*").last_exhausted_at is not None
    assert QuotaState.objects.get(tenant_id=TENANT).last_exhausted_at is not None
    with pytest.raises(ProviderQuotaExceededError):
        QuotaState.reserve(tenant_id=OTHER, provider_name="rank", capability="rank_snapshot")


def test_what_one_gate_refuses_spends_nothing_of_the_other() -> None:
    calls.set_quota(ACCOUNT, limit=10, window=86400.0, by="tests")
    calls.set_quota(WHO, limit=0, window=86400.0, by="tests")
    assert ask(scripted({"rank": 1})).reason_code == "quota_exhausted"
    assert used(ACCOUNT) == 0
    calls.set_quota(WHO, limit=10, window=86400.0, by="tests")
    calls.set_quota(ACCOUNT, limit=0, window=86400.0, by="tests")
    assert ask(scripted({"rank": 1})).reason_code == "quota_exhausted"
    assert used(WHO) == 0


def test_what_never_left_is_given_back_to_both() -> None:
    for who in (ACCOUNT, WHO):
        calls.set_quota(who, limit=5, window=86400.0, by="tests")
    ask(scripted(ProviderConnectionError(never_left=True), retry_policy=ONCE))
    assert (used(ACCOUNT), used(WHO)) == (0, 0)
    # Between attempts the reservation is kept; the last refusal gives it back.
    tries = scripted(ProviderConnectionError(never_left=True), breaker_policy=BreakerPolicy(failure_threshold=3))
    ask(tries)
    assert (used(ACCOUNT), used(WHO), len(tries.calls)) == (0, 0, 2)


def test_one_act_of_an_operator_stops_a_provider_for_every_tenant_known_or_not() -> None:
    ask(scripted({"rank": 1}))
    calls.force_open(ACCOUNT, by="ada", reason="the provider is down")
    for tenant in (TENANT, str(uuid4())):
        assert ask(scripted({"rank": 1}), tenant).reason_code == "circuit_open"
    other = scripted({"x": 1}, capability="rank_history")
    assert ask(other).reason_code == "circuit_open"
    calls.reset(ACCOUNT, by="ada", reason="back again")
    assert ask(other).ok


def test_tenants_with_an_account_of_their_own_are_left_alone() -> None:
    class Accounts(Scripted):
        def account_of(self, tenant_id: str) -> str:
            return "own" if tenant_id == OTHER else ""

    calls.force_open(ACCOUNT, by="ada", reason="the key is locked")
    assert ask(Accounts({"rank": 1})).reason_code == "circuit_open"
    assert ask(Accounts({"rank": 1}), OTHER).ok
    calls.force_open(Who.of_account("rank", "own"), by="ada", reason="this one, too")
    assert ask(Accounts({"rank": 1}), OTHER).reason_code == "circuit_open"
    # A tenant that moves to another account is asked for there from its next call on.
    assert ask(Scripted({"rank": 1}), OTHER).reason_code == "circuit_open"
    calls.reset(ACCOUNT, by="ada", reason="a new key")
    assert ask(Scripted({"rank": 1}), OTHER).ok


def test_names_that_mean_an_account_are_no_tenants() -> None:
    for tenant in ("*", "*own"):
        with pytest.raises(ProviderUsageError, match="star"):
            ask(Scripted({}), tenant)


def test_racing_tenants_get_exactly_what_a_window_of_their_account_allows() -> None:
    calls.set_quota(ACCOUNT, limit=50, window=86400.0, by="tests")
    total = told(1.0, kind="share")
    assert sum(times for (decision, _), times in total.items() if decision == "admitted") == 50
    assert total["quota", None] > 0
    assert used(ACCOUNT) == 50


@pytest.mark.parametrize("probes", [1, 3])
def test_racing_tenants_get_exactly_so_many_probes_of_their_account(probes: int) -> None:
    quick = BreakerPolicy(failure_threshold=1, open_cooldown_seconds=1.0)
    ask(scripted(TimeoutError(), **ACCOUNTS | {"breaker_policy": quick}))
    total = told(1.5, kind="share", cost=0, probes=probes)
    passed = Counter({word: times for (word, _), times in total.items()})
    assert Gate.objects.get(tenant_id="*").admissions == 1 + probes
    assert passed["circuit"] > 0


@pytest.mark.postgresql
def test_both_gates_are_passed_by_one_statement_and_settled_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(scripted({"rank": 1}, **ACCOUNTS))
    said, execute = [], pooler.execute_prepared

    def noted(raw: Any, statement: str, given: Any) -> Any:
        said.append(statement)
        return execute(raw, statement, given)

    monkeypatch.setattr(pooler, "execute_prepared", noted)
    ask(scripted({"rank": 1}, **ACCOUNTS))
    changes = [text for text in said if "UPDATE provider_gates" in text]
    assert len(changes) == 2
    assert all("WITH look AS" in text for text in changes)


def test_what_a_call_meets_is_shown_of_each_tenant_and_of_the_account() -> None:
    ask(scripted({"rank": 1}))
    calls.force_open(ACCOUNT, by="ada", reason="down")
    own, account = health.of_tenant(TENANT)[0], health.of_tenant("*")[0]
    assert (own.state.value, own.effective.value, account.state.value) == ("closed", "open", "open")
    assert account.rates.attempts == 1
    assert [one.what for one in health.open_among([WHO])] == ["breaker rank/* open"]


def test_commands_name_an_account_by_a_star() -> None:
    ask(scripted({"rank": 1}))
    run("breaker", "force-open", "*", "rank", "*", "--reason", "down")
    assert ask(scripted({"rank": 1})).reason_code == "circuit_open"
    run("breaker", "reset", "*", "rank", "*", "--reason", "back")
    run("quota", "set", "*", "rank", "*", "--limit", "0", "--window", "60")
    assert ask(scripted({"rank": 1})).reason_code == "quota_exhausted"
    with pytest.raises(CommandError, match="capability"):
        run("quota", "set", "*", "rank", "rank_snapshot", "--limit", "0", "--window", "60")
    with pytest.raises(CommandError, match="--create"):
        run("quota", "set", "*", "renk", "*", "--limit", "0", "--window", "60")


@pytest.mark.parametrize(("platform", "status"), [([], 403), (["platform"], 200)])
def test_only_clients_of_the_platform_change_what_all_tenants_share(platform: list[str], status: int) -> None:
    grant = Grant(scopes=["providers:operate", *platform], tenants=[UUID(TENANT)])
    token = clients.create("erp", grant, by="tests").token.text
    api = Client(headers={"Authorization": f"Bearer {token}"})
    stop = {"tenant_id": "*", "action": "force-open", "reason": "down"}
    assert post(api, "providers/rank/*/override", stop).status_code == status
    limit = json.dumps({"tenant_id": "*", "limit": 5, "window": 60, "reason": "shared"})
    answer = api.put("/api/v1/providers/rank/*/quota", limit, content_type="application/json")
    assert answer.status_code == status
    assert Gate.objects.filter(tenant_id="*", override="open", quota_limit=5).exists() is (status == 200)


def test_changes_of_an_account_are_events_of_its_own() -> None:
    failing = scripted(TimeoutError(), **ACCOUNTS)
    ask(failing)
    ask(failing, OTHER)
    calls.reset(ACCOUNT, by="ada", reason="back")
    ask(scripted(ProviderRateLimitError(retry_after=40), **ACCOUNTS))
    calls.set_quota(ACCOUNT, limit=0, window=86400.0, by="ada")
    ask(scripted({"rank": 1}, **ACCOUNTS))
    rows = ProviderEvent.objects.order_by("id").values_list("tenant_id", "kind", "from_state", "to_state", "by")
    assert list(rows) == [
        ("*", "breaker", "closed", "open", ""),
        ("*", "breaker", "open", "closed", "ada"),
        ("*", "pause", "none", "paused", ""),
        ("*", "quota", "none", "0 in 86400 s", "ada"),
        ("*", "exhaustion", "available", "exhausted", ""),
    ]


def test_the_attention_list_names_the_account() -> None:
    calls.force_open(ACCOUNT, by="ada", reason="down")
    now = database_time()
    found = breakers.outages(dashboard.troubles([row for *_, row in dashboard.rows(now)], now))
    [one] = dashboard.items(found, is_capped=False)
    assert one.title.startswith("rank of all tenants: forced open")
    assert one.detail.startswith("All that share the account.")


def test_answers_of_an_account_are_dropped_for_all_that_share_it() -> None:
    for tenant in (TENANT, OTHER):
        ask(scripted({"rank": 1}, cache_for=60.0), tenant)
    told = run("provider_cache", "drop", "*", "rank", "*", "--yes", "--reason", "wrong ranks")
    assert "rank of all tenants: 2 cached answers dropped" in told
    assert ask(scripted({"rank": 2}, cache_for=60.0)).payload == {"rank": 2}
