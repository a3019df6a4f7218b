"""Policies of providers: what the database says stands above the class, live, in every process; and system checks."""

import time
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import Client

from engines.core.errors import PolicyError
from engines.worker import maintenance
from ergon_site.access.policies.errors import VersionUnknownError
from ergon_site.dashboard import providers
from ergon_site.gauges import NAMES, Gauges
from providers import (
    BreakerPolicy,
    ProviderConnectionError,
    ProviderError,
    ProviderPolicy,
    ProviderRateLimitError,
    ProviderTimeoutError,
    RetryPolicy,
    active_policy,
    calls,
    checks,
    policies,
    registry,
)
from providers.models import Gate, ProviderEvent, ProviderExecutionMetric, ProviderPolicyRow, ProviderPolicyVersion
from tests.processes import database_url
from tests.providers.scripted_providers import WHO, scripted

pytestmark = pytest.mark.django_db

DOWN = ProviderConnectionError("no route")
RANK = ("rank", "rank_snapshot")


def write(body: Any, **terms: Any) -> ProviderPolicyVersion:
    return policies.write(*RANK, body=body, **{"by": "ada", "reason": "x", **terms})


def test_the_class_speaks_where_no_policy_does() -> None:
    provider = scripted(DOWN, timeout=7.0)
    assert active_policy.governing(provider) == (active_policy.defaults_of(provider), None)
    provider.ask()
    assert set(ProviderExecutionMetric.objects.values_list("policy_version", flat=True)) == {None}


def test_the_next_call_obeys_a_new_version_and_says_so() -> None:
    provider = scripted(DOWN)
    assert len(provider.ask().attempts) == 3
    write({"retry": {"max_attempts": 2, "base_delay_seconds": 0}, "breaker": {"failure_threshold": 100}})
    assert len(provider.ask().attempts) == 2
    write({"retry": {"max_attempts": 1}, "breaker": {"failure_threshold": 100}})
    assert len(provider.ask().attempts) == 1
    policies.activate(*RANK, number=1, by="ada", reason="back")
    assert active_policy.governing(provider).policy.retry.max_attempts == 2
    numbers = ProviderExecutionMetric.objects.order_by("pk").values_list("policy_version", flat=True)
    assert list(numbers) == [None, None, None, 1, 1, 2]


def test_what_a_version_does_not_say_is_as_the_class_says() -> None:
    names = {"provider_name": "own", "capability": "wishes"}
    provider = scripted({}, breaker_policy=BreakerPolicy(failure_threshold=77), timeout=7.0, **names)
    body = policies.write(*names.values(), body={"retry": {"max_attempts": 1}}, by="ada", reason="x").body
    assert (body["breaker"]["failure_threshold"], body["timeout"], body["retry"]["max_attempts"]) == (77, 7.0, 1)
    assert body["retry"]["base_delay_seconds"] == provider.retry_policy.base_delay_seconds
    assert active_policy.governing(provider).policy.breaker.failure_threshold == 77
    registered = registry.register(scripted({}, timeout=8.0))
    assert write({}).body["timeout"] == registered.timeout
    registry.forget(*RANK)


def test_what_a_version_says_of_a_provider_that_nobody_knows_is_completed_all_the_same() -> None:
    version = policies.write("unheard", "of", body={"cost": 2}, by="ada", reason="x")
    assert version.body == ProviderPolicy(cost=2).to_stored()
    broken = scripted({}, provider_name="broken", capability="of", timeout=-1)
    version = policies.write("broken", "of", body={"cost": 2}, by="ada", reason="x")
    assert version.body == ProviderPolicy(cost=2).to_stored()
    type(broken).timeout = 30.0


def test_what_another_process_writes_is_known_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, now = scripted({}), [100.0]
    # Time is looked at, not waited for.
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    assert active_policy.governing(provider).number is None
    active_policy.POLICIES.write(*RANK, body={}, by="ada", reason="x")
    assert active_policy.governing(provider).number is None
    now[0] += active_policy.FRESH
    assert active_policy.governing(provider).number == 1


def test_looking_costs_nothing_while_it_is_fresh(django_assert_num_queries: Any) -> None:
    provider = scripted({})
    with django_assert_num_queries(1):
        for _ in range(5):
            active_policy.governing(provider)


def test_while_the_database_is_away_the_last_word_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    write({"timeout": 3})
    provider = scripted({})
    assert active_policy.governing(provider).number == 1
    monkeypatch.setattr(active_policy, "FRESH", 0.0)

    def lost(*_: Any) -> None:
        raise OperationalError

    # The connection stays whole: what the rest of a test needs it for is not of interest here.
    monkeypatch.setattr(type(active_policy.POLICIES), "look_up", lost)
    assert active_policy.governing(provider).number == 1
    active_policy.forget_all()
    assert active_policy.governing(provider) == (active_policy.defaults_of(provider), None)


def test_whoever_comes_during_a_look_goes_by_what_was_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, look_up = scripted({}), active_policy.POLICIES.look_up
    write({"timeout": 7})
    before = active_policy.governing(provider)
    found: list[Any] = []

    def slow(_: Any, *key: str) -> Any:
        found.append(active_policy.remembered(provider))
        return look_up(*key)

    # As another thread would ask in that moment.
    monkeypatch.setattr(type(active_policy.POLICIES), "look_up", slow)
    monkeypatch.setattr(active_policy, "FRESH", 60.0)
    later = time.monotonic() + 60.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert active_policy.governing(provider) == before
    assert found == [before]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_look_that_is_not_answered_leaves_a_call_half_of_its_time() -> None:
    provider = scripted({"rank": 1}, on_store_failure="local")
    assert provider.ask().ok
    with psycopg.connect(database_url()) as other:
        other.execute("LOCK TABLE provider_policies")
        for limit in (2.0, 4.0, 4.0):  # the others for a machine that stood still
            active_policy.forget_all()
            result = provider.ask(deadline=time.monotonic() + limit)
            if result.ok:
                break
        other.rollback()
    assert result.ok


def test_what_is_not_valid_is_never_kept() -> None:
    wrong: list[Any] = [{"timeout": 0}, {"on_store_failure": "perhaps"}, {"retry": {"max_attempts": 0}}, {"x": 1}, []]
    for_ever = [{"breaker": {"open_cooldown_seconds": 999_999_999_999}}, {"retry_after_ceiling": 999_999_999_999}]
    for body in [*wrong, *for_ever]:
        with pytest.raises(PolicyError):
            write(body)
    for name in ("", " ", "x" * 101, "a\x00b"):
        with pytest.raises(policies.PolicyNameError, match="a text of 1 to 100 characters"):
            policies.write(name, "send", body={}, by="ada", reason="x")
    assert not ProviderPolicyVersion.objects.exists()


@pytest.mark.parametrize("error", [ProviderTimeoutError(), ProviderRateLimitError(retry_after=999_999_999_999)])
def test_a_version_of_an_older_release_shuts_for_no_longer_than_calendars_go(
    browse: Client, error: ProviderError
) -> None:
    first = write({"retry": {"max_attempts": 1}})
    for_ever = {"breaker": {"failure_threshold": 1, "open_cooldown_seconds": 999_999_999_999}}
    body = first.body | for_ever | {"retry_after_ceiling": 999_999_999_999}
    second = ProviderPolicyVersion.objects.create(policy=first.policy, number=2, body=body, author="ada", reason="x")
    ProviderPolicyRow.objects.update(active=second)
    active_policy.forget_all()
    provider = scripted(error, retry_policy=RetryPolicy(max_attempts=1))
    assert provider.ask().reason_code == error.reason_code
    assert [one.until is not None for one in ProviderEvent.objects.all()] == [True]
    assert browse.get("/admin/").status_code == 200
    policies.activate(*RANK, number=2, by="ada", reason="again")


def test_an_attribute_that_no_policy_takes_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = scripted({})
    wrong: list[Any] = [[], {}, 0, "soon"]
    for timeout in wrong:
        monkeypatch.setattr(type(provider), "timeout", timeout)
        with pytest.raises(PolicyError, match="timeout"):
            active_policy.governing(provider)


def test_a_version_is_written_once() -> None:
    version = write({})
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        ProviderPolicyVersion.objects.filter(pk=version.pk).update(reason="another")


def test_the_classes_that_were_imported_are_known() -> None:
    kind = type(scripted({}, provider_name="mail", capability="send"))
    assert registry.classes()["mail", "send"] is kind


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (ProviderPolicy(), []),
        (ProviderPolicy(timeout=None), []),
        (ProviderPolicy(timeout=90), ["providers.W003"]),
        (ProviderPolicy(timeout=59, retry=RetryPolicy(max_attempts=10)), ["providers.W004"]),
        (ProviderPolicy(retry=RetryPolicy(base_delay_seconds=9, max_delay_seconds=3)), ["providers.W002"]),
        (ProviderPolicy(on_store_failure="local", quota_per_attempt=True), ["providers.E005"]),
        (ProviderPolicy(deduplicate=True, cache_for=60), ["providers.W009"]),
        (ProviderPolicy(deduplicate=True, cache_for=60, replay_for=60), []),
        # Probes come one after the other: two of them can close what lets one through at a time.
        (ProviderPolicy(breaker=BreakerPolicy(half_open_max_calls=1, success_threshold=2)), []),
    ],
)
def test_settings_that_cannot_work_are_found(policy: ProviderPolicy, found: list[str]) -> None:
    assert [one.id for one in checks.of_policy(policy, None)] == found


def test_classes_and_brokers_that_cannot_work_are_found(settings: Any) -> None:
    broken = scripted({}, provider_name="broken", capability="send", timeout=-1)
    found = [one for one in checks.check_providers() if one.obj is type(broken)]
    assert [one.id for one in found] == ["providers.E001"]
    type(broken).timeout = 30.0
    settings.CELERY_BROKER_TRANSPORT_OPTIONS, settings.CELERY_TASK_TIME_LIMIT = {"visibility_timeout": 60}, 60
    assert "providers.E006" in [one.id for one in checks.check_providers()]


def test_the_doctor_finds_quotas_that_nobody_counts_without_the_database() -> None:
    free = scripted({}, on_store_failure="local", provider_name="free", capability="read")
    calls.set_quota(WHO._replace(provider_name="free", capability="read"), limit=5, window=60, by="ada")
    assert [one.text for one in providers.findings() if "free read" in one.text] == [
        "free read has quotas, but its calls are not counted while the database is unavailable"
    ]
    policies.write(free.provider_name, free.capability, body={"on_store_failure": "closed"}, by="ada", reason="x")
    assert not [one for one in providers.findings() if "free read" in one.text]


def test_maintenance_rates_and_prunes_providers() -> None:
    scripted({}).ask()
    chores = {chore.name: chore for chore in maintenance.all_chores(30)}
    assert chores["providers_rated"].run() in {0, 1}
    assert chores["providers_pruned"].run() == 0


def test_gauges_count_tenants_by_state() -> None:
    scripted({}).ask()
    calls.force_open(WHO._replace(tenant_id="acme"), by="ada", reason="x")
    calls.set_quota(WHO, limit=0, window=60, by="ada")
    Gate.objects.update(window_start=60.0, window_end=120.0)  # a quota of zero is exhausted in every window
    families = {family.name: family for family in Gauges().collect()}
    assert set(families) == set(NAMES)
    states = {one.labels["state"]: one.value for one in families["ergon_provider_breakers"].samples}
    assert states == {"closed": 1, "open": 1, "half_open": 0}
    assert [one.value for one in families["ergon_provider_quotas_exhausted"].samples] == [1]
    assert [one.value for one in families["ergon_provider_outbox_waiting"].samples] == [0]
    assert connection.is_usable()


def test_a_policy_that_contradicts_itself_is_refused_as_a_class_is() -> None:
    both = {"on_store_failure": "local", "quota_per_attempt": True}
    with pytest.raises(PolicyError, match=r"ProviderPolicy.quota_per_attempt must be false where on_store_failure"):
        policies.write("unheard", "of", body=both, by="ada", reason="x")
    policies.write("unheard", "of", body={}, by="ada", reason="x")
    row = active_policy.POLICIES.find("unheard", "of")
    ProviderPolicyVersion.objects.create(policy=row, number=2, body=both, author="ada", reason="by hand")
    with pytest.raises(PolicyError, match="quota_per_attempt"):
        policies.activate("unheard", "of", number=2, by="ada", reason="x")
    with pytest.raises(VersionUnknownError):
        policies.activate("unheard", "of", number=3, by="ada", reason="x")


def test_the_doctor_says_what_of_a_live_policy_cannot_take_effect() -> None:
    write({"probe_lease": 5.0, "timeout": 30.0})
    [finding] = [one for one in providers.findings() if one.check == "policies of providers"]
    assert finding.level == "warning"
    assert finding.text.endswith("A probe keeps its place for 5 s but may take 30 s.")
    write({"probe_lease": 60.0, "timeout": 30.0})
    assert not [one for one in providers.findings() if one.check == "policies of providers"]
