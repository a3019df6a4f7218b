"""An outcome is the same after the journal has kept it."""

from dataclasses import replace

import pytest

from providers.core.breaker import BreakerPolicy, Permit, Verdict
from providers.core.errors import ProviderError, ProviderRateLimitError
from providers.core.exchange import CallRequest, Outcome, ProviderExecutionContext, Who
from providers.core.gate import Admission, Decision, Reservation
from providers.core.journal_entry import dumped, loaded
from providers.core.policy import ProviderPolicy
from providers.core.steps import Settle

REQUEST = CallRequest(
    who=Who("tenant", "rank", "snapshot"),
    operation="look",
    key="order-1",
    fingerprint="f" * 64,
    policy=ProviderPolicy(breaker=BreakerPolicy(failure_threshold=7), timeout=None),
    context=ProviderExecutionContext(
        "c-1", "order-1", task_execution_id=3, task_name="fetch", task_arguments={"args": [], "kwargs": {"a": 1}}
    ),
    campaign_id="spring",
    payload={"keyword": "tea"},
    version=2,
    policy_version=4,
    asked_at=1000.5,
    token="t",
)
WON = Settle(
    attempt=2,
    admission=Admission(Decision.PROBE, Permit(3, "17"), 960.0, 1),
    duration=0.25,
    budget=2.0,
    verdict=Verdict.SUCCESS,
    outcome=Outcome.SUCCESS,
    payload={"rank": [1, None, {"deep": True}]},
    http_status=200,
)
LOST = WON._replace(
    verdict=Verdict.FAILURE,
    outcome=Outcome.DEAD_LETTER,
    payload=None,
    error=ProviderRateLimitError("slow down", http_status=429, retry_after=3.0, never_left=True),
    http_status=429,
    refund=Reservation(1, 960.0),
    refunds_retry=True,
    cooldown=3.0,
)
SHARED = LOST._replace(
    admission=LOST.admission._replace(account=Admission(Decision.ADMITTED, Permit(9), 900.0, 1)),
    refund=Reservation(1, 960.0, Reservation(1, 900.0)),
)


@pytest.mark.parametrize("settlement", [WON, LOST, SHARED])
def test_what_was_kept_comes_back_as_one_that_may_have_been_settled(settlement: Settle) -> None:
    request, found = loaded(dumped(REQUEST, settlement))
    assert request == REQUEST
    assert found == settlement._replace(is_repeat=True, error=found.error)
    assert _about(found.error) == _about(settlement.error)


def test_what_json_does_not_know_is_kept_as_text() -> None:
    odd = replace(REQUEST, payload={"at": Outcome.SUCCESS, "raw": b"x", "half": "\ud800"})
    request, found = loaded(dumped(odd, WON._replace(payload={"nan": float("nan"), "raw": b"x"})))
    assert request.payload["raw"] == "b'x'"
    assert found.payload == {"nan": "nan", "raw": "b'x'"}


def _about(error: ProviderError | None) -> object:
    return error and (type(error), error.message, error.http_status, error.retry_after, error.never_left)
