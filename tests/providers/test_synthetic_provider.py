"""The provider that makes everything up does so as it was told."""

import time
from collections import Counter
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from providers import BreakerPolicy, ProviderExecutionResult, ProviderTimeoutError, RetryPolicy, SyntheticProvider
from tests.providers.scripted_providers import TENANT, context

pytestmark = pytest.mark.django_db(transaction=True)


class Made(SyntheticProvider):
    provider_name, capability = "rank", "rank_snapshot"
    retry_policy = RetryPolicy(max_attempts=1)
    breaker_policy = BreakerPolicy(failure_threshold=1000)


def ask(provider: SyntheticProvider, **about: Any) -> ProviderExecutionResult:
    return provider.execute(
        tenant_id=TENANT, operation="snapshot", payload={"keyword": "tea"}, context=context(**about)
    )


def reasons(provider: SyntheticProvider, count: int) -> list[str | None]:
    return [ask(provider).reason_code for _ in range(count)]


def test_without_a_word_it_says_what_it_was_asked() -> None:
    assert ask(Made()).payload == {"call": 1, "asked": {"keyword": "tea"}}


def test_it_goes_through_its_script_and_then_its_answer() -> None:
    script: list[Any] = [
        {"rank": 3},
        "timeout",
        ProviderTimeoutError("very slow"),
        lambda payload: {"of": payload["keyword"]},
    ]
    provider = Made(*script, answer={"rank": 1})
    results = [ask(provider) for _ in range(6)]
    assert [result.payload for result in results] == [{"rank": 3}, None, None, {"of": "tea"}, {"rank": 1}, {"rank": 1}]
    assert [result.reason_code for result in results[1:3]] == ["timeout", "timeout"]
    assert provider.calls == 6


def test_an_empty_answer_is_one() -> None:
    provider = Made({}, answer={})
    assert [ask(provider).payload for _ in range(2)] == [{}, {}]


def test_the_same_seed_gives_the_same_course_of_events() -> None:
    mix = {"timeout": 0.3, "bad_request": 0.3}
    first, again = (reasons(Made(seed=7, failures=mix), 30) for _ in range(2))
    assert first == again
    assert first != reasons(Made(seed=8, failures=mix), 30)
    assert set(Counter(first)) == {None, "timeout", "bad_request"}


def test_a_rate_limit_asks_for_its_pause() -> None:
    result = ask(Made("rate_limited", retry_after=7))
    assert (result.reason_code, result.retry_after, result.attempts[0].http_status) == ("rate_limited", 7, 429)


def test_it_is_down_until_it_recovers() -> None:
    provider = Made()
    provider.break_down("connection_error")
    assert reasons(provider, 2) == ["connection_error"] * 2
    provider.recover()
    assert ask(provider).ok


def test_it_takes_its_time_and_keeps_to_its_limit() -> None:
    began = time.monotonic()
    assert ask(Made(latency=0.2)).ok
    assert time.monotonic() - began >= 0.2
    for limit in (0.1, 5.0):  # the second for a machine that stood still
        result = ask(Made(latency=60), deadline=time.monotonic() + limit)
        if result.reason_code == "timeout":
            break
    assert result.reason_code == "timeout"
    assert time.monotonic() - began < 30


def test_it_can_be_awaited() -> None:
    execute = async_to_sync(Made({"rank": 1}, latency=(0.0, 0.01)).aexecute)
    assert execute(tenant_id=TENANT, operation="snapshot", payload={}, context=context()).payload == {"rank": 1}


@pytest.mark.parametrize("failures", [{"no such reason": 0.1}, {"timeout": -0.1}, {"timeout": 0.6, "bad_request": 0.6}])
def test_a_mix_that_makes_no_sense_is_refused(failures: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"reason code|add up"):
        Made(failures=failures)
