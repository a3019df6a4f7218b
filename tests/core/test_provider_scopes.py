"""Scopes: whose calls a gate is for, and the answers of two gates as one."""

import pytest

from providers.core.breaker import BreakerPolicy, Permit
from providers.core.errors import ProviderUsageError
from providers.core.exchange import CallRequest, ProviderExecutionContext, Who
from providers.core.gate import NOTHING, Admission, Asked, Decision, Reservation, Scope
from providers.core.policy import ProviderPolicy
from providers.core.request import refuse_mistakes

PASSED = Admission(Decision.ADMITTED, Permit(3), 60.0, 2)


def test_a_scope_says_which_of_two_gates_counts() -> None:
    assert [(one.has_tenant, one.has_account) for one in (Scope.TENANT, Scope.ACCOUNT, Scope.BOTH)] == [
        (True, False),
        (False, True),
        (True, True),
    ]
    assert not Asked(BreakerPolicy()).is_shared
    assert Asked(BreakerPolicy(), pause_scope=Scope.BOTH).is_shared
    assert Asked(BreakerPolicy(), breaker_scope=Scope.ACCOUNT).is_shared


def test_an_account_has_a_name_that_no_tenant_can_have() -> None:
    shared, own = Who.of_account("rank"), Who.of_account("rank", "eu")
    assert (shared, own) == (Who("*", "rank", "*"), Who("*eu", "rank", "*"))
    assert [one.title for one in (shared, own, Who("t", "rank", "snapshot"))] == [
        "rank of all tenants",
        "rank of all tenants of the account eu",
        "rank snapshot of t",
    ]
    assert shared.is_account
    assert not Who("*", "rank", "snapshot").is_account
    assert not Who("t", "rank", "*").is_account
    for name in ("tenant_id", "capability"):
        with pytest.raises(ProviderUsageError, match="star"):
            refuse_mistakes({name: "*eu"})


def test_a_request_knows_the_gate_of_its_account() -> None:
    request = CallRequest(
        who=Who("t", "rank", "snapshot"),
        operation="look",
        key="k",
        fingerprint="f",
        policy=ProviderPolicy(),
        context=ProviderExecutionContext("c"),
        account="*eu",
    )
    assert request.account_gate == Who.of_account("rank", "eu")


def test_what_is_reserved_is_held_until_it_is_given_back() -> None:
    assert PASSED.reservation == Reservation(2, 60.0)
    both = PASSED._replace(reserved=0, account=PASSED)
    assert both.reservation == Reservation(0, 60.0, Reservation(2, 60.0))
    assert both.reservation.is_held
    assert PASSED.reservation.is_held
    assert not NOTHING.is_held
    assert not Reservation(0, 60.0, NOTHING).is_held


def test_whoever_refused_is_known() -> None:
    refused = Admission(Decision.CIRCUIT, retry_after=4.0)
    assert not refused.is_refused_by_account
    assert refused._replace(account=refused).is_refused_by_account
    assert not PASSED._replace(account=PASSED).is_refused_by_account


def test_a_call_probes_if_either_of_its_gates_is_half_open() -> None:
    probing = Admission(Decision.PROBE, Permit(3, "7"))
    assert [one.is_probe for one in (PASSED, probing, PASSED._replace(account=PASSED))] == [False, True, False]
    assert PASSED._replace(account=probing).is_probe
