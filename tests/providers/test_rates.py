"""The rates of the last hour are those of all calls that are settled, whichever statement computes them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ergon_site.access.database.clock import database_time
from providers import calls
from providers.calls import rating, settling
from providers.core.exchange import CallRequest, Who
from providers.core.gate import Decision
from providers.core.histogram import FEW_ATTEMPTS, HOUR, rates_of
from providers.core.steps import Settle
from providers.database import admitting, sql
from providers.models import Gate, ProviderHealthState
from providers.models.calls import ProviderMinute
from tests.processes import eventually
from tests.providers.scripted_providers import WHO
from tests.providers.test_group_settling import (
    Caller,
    gates_held,
    outcomes,
    settle_in_time,
    somebody_waits_for_a_lock,
    success,
)

pytestmark = pytest.mark.django_db(transaction=True)
OTHER = Who(WHO.tenant_id, WHO.provider_name, "another")
# More than a minute's drift away from where the hour ends, so that the time that a test takes changes nothing.
AGO = st.integers(1, HOUR - 10) | st.integers(HOUR + 10, 2 * HOUR)
Settling = Callable[[Sequence[tuple[CallRequest, Settle]]], Any]


@st.composite
def minutes(draw: st.DrawFn) -> dict[str, Any]:
    """A minute as calls have left it."""
    buckets = draw(st.dictionaries(st.integers(0, 300), st.integers(1, 40), min_size=1, max_size=5))
    attempts = sum(buckets.values())
    executions = draw(st.integers(1, attempts))
    successes = draw(st.integers(0, executions))
    return {
        "attempts": attempts,
        "successes": successes,
        "executions": executions,
        "successful_executions": successes,
        "buckets": {str(bucket): count for bucket, count in buckets.items()},
    }


def one_by_one(pairs: Sequence[tuple[CallRequest, Settle]]) -> None:
    for pair in pairs:
        assert calls.settle(*pair) is Decision.ENDED


def rate(who: Who) -> None:
    if sql.is_postgresql():
        rating.show({who: None})
    else:
        rating.rate(Gate.objects.get(**who._asdict()).pk, who)


def shown(who: Who) -> tuple[Any, ...]:
    health = ProviderHealthState.objects.get(**who._asdict())
    return health.success_rate_1h, health.execution_rate_1h, health.p95_latency_ms_1h, health.attempts_1h


def computed(who: Who) -> tuple[Any, ...]:
    """The rates of what is kept of the last hour."""
    since = int(database_time().timestamp()) // 60 - HOUR
    rows = ProviderMinute.objects.filter(gate_id=Gate.objects.get(**who._asdict()).pk, minute__gt=since)
    found = rows.values_list("attempts", "successes", "executions", "successful_executions", "buckets")
    rates = rates_of(list(found))
    return rates.success, rates.execution, rates.p95, rates.attempts


@pytest.mark.parametrize("settle", [one_by_one, settling.settle_together])
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.dictionaries(AGO, minutes(), max_size=6),
    durations=st.lists(st.sampled_from([0.0, 0.000011, 0.1, 0.1001, 3.0, 5000.0]), min_size=2, max_size=4),
)
def test_rates_are_those_of_the_hour_with_the_calls_just_settled(
    settle: Settling, history: dict[int, Any], durations: list[float]
) -> None:
    for model in (ProviderMinute, ProviderHealthState, Gate):
        model._default_manager.all().delete()
    for who in (WHO, OTHER):
        admitting.make_gate(who)
    now = int(database_time().timestamp()) // 60
    gate = Gate.objects.get(**WHO._asdict())
    ProviderMinute.objects.bulk_create(
        [ProviderMinute(gate_id=gate.pk, minute=now - ago, **minute) for ago, minute in history.items()]
    )
    settle([success(who, duration=duration) for duration in durations for who in (WHO, OTHER)])
    for who in (WHO, OTHER):
        if settle is settling.settle_together:
            rate(who)  # as whoever settles does afterwards
        rating.board.show_waiting()
        if settle is one_by_one and shown(who)[-1] >= FEW_ATTEMPTS:
            continue  # which are rated once a second
        assert shown(who) == pytest.approx(computed(who), abs=0.001)


def test_a_settlement_that_waited_for_others_counts_them_all() -> None:
    admitting.make_gate(WHO)
    one_by_one([success()])
    with gates_held():
        waiting = Caller(partial(settle_in_time, success()))
        eventually(somebody_waits_for_a_lock, "it has begun, and does not see what is settled before its turn")
        settling.settle_together([success(duration=2.0), success(duration=2.0)])
    assert outcomes([waiting]) == [Decision.ENDED]
    rating.board.show_waiting()
    assert shown(WHO) == computed(WHO)
    assert shown(WHO)[-1] == 4


def test_rates_of_a_busy_capability_are_computed_once_a_second() -> None:
    admitting.make_gate(WHO)
    now = int(database_time().timestamp()) // 60
    gate = Gate.objects.get()
    many = {"attempts": FEW_ATTEMPTS, "successes": 0, "executions": FEW_ATTEMPTS, "buckets": {"3": FEW_ATTEMPTS}}
    ProviderMinute.objects.create(gate_id=gate.pk, minute=now - 1, **many)
    one_by_one([success()])
    first = shown(WHO)
    assert first[-1] == FEW_ATTEMPTS + 1
    ProviderHealthState.objects.update(rated_at=database_time().timestamp() + 30)  # long before a second is over
    one_by_one([success()])
    assert shown(WHO) == first
    ProviderHealthState.objects.update(rated_at=database_time().timestamp() - 2)  # SQLite rounds to milliseconds
    one_by_one([success()])
    assert shown(WHO)[-1] == FEW_ATTEMPTS + 3
