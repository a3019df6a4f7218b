"""Policies: bounds, names in errors, JSON without loss."""

import json
import math
import pickle
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given, strategies as st

import engines
from engines.core.backoff import exponential
from engines.core.errors import PolicyError
from engines.core.policy import (
    BatchPolicy,
    ConcurrencyPolicy,
    ConsumerLoopPolicy,
    ConsumerPolicy,
    EmptyQueuePolicy,
    FetchPolicy,
    ProducerPolicy,
    RetryPolicy,
)
from providers.core.policy import ProviderPolicy


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RetryPolicy(max_attempts=0), "RetryPolicy.max_attempts must be a whole number of at least 1, not 0"),
        (lambda: RetryPolicy(max_attempts=True), "RetryPolicy.max_attempts"),
        (lambda: RetryPolicy(max_attempts=1.5), "RetryPolicy.max_attempts"),  # type: ignore[arg-type]
        (lambda: RetryPolicy(timeout=0), "RetryPolicy.timeout must be a number of seconds above 0 or null, not 0"),
        (lambda: RetryPolicy(backoff=-1), "RetryPolicy.backoff must be a number of seconds of at least 0, not -1"),
        (lambda: RetryPolicy(backoff=math.nan), "RetryPolicy.backoff"),
        (lambda: RetryPolicy(backoff_multiplier=0.5), "RetryPolicy.backoff_multiplier must be a number of at least 1"),
        (lambda: RetryPolicy(backoff_cap=math.inf), "RetryPolicy.backoff_cap"),
        (lambda: RetryPolicy(timeout=10**400), "RetryPolicy.timeout"),
        (lambda: RetryPolicy.from_json("[" * 100_000), "RetryPolicy is not JSON"),
        (lambda: RetryPolicy(timeout="5"), "RetryPolicy.timeout"),  # type: ignore[arg-type]
        (lambda: ConcurrencyPolicy(value=0), "ConcurrencyPolicy.value"),
        (lambda: ConcurrencyPolicy(value=2, min=3), r"ConcurrencyPolicy.min must be at most value \(2\), not 3"),
        (lambda: ConcurrencyPolicy(value=2, max=1), r"ConcurrencyPolicy.max must be at least value \(2\), not 1"),
        (lambda: BatchPolicy(size=0), "BatchPolicy.size"),
        (lambda: BatchPolicy(size=10**20), "BatchPolicy.size must be at most 2,147,483,647"),
        (lambda: BatchPolicy(size=2, min_size=3), r"BatchPolicy.min_size must be at most size \(2\)"),
        (lambda: BatchPolicy(size=2, max_size=1), r"BatchPolicy.max_size must be at least size \(2\)"),
        (lambda: FetchPolicy(extra=[]), "FetchPolicy.extra must be an object"),  # type: ignore[arg-type]
        (lambda: FetchPolicy(connector_name=""), "FetchPolicy.connector_name must be a name or null"),
        (lambda: ConsumerPolicy(loop=None), "ConsumerPolicy.loop must be a ConsumerLoopPolicy"),  # type: ignore[arg-type]
        (lambda: ConsumerPolicy(record_payload=1), "record_payload must be true or false"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_policy_names_the_field_and_the_bound(make: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        make()


def test_bounds_that_agree_are_taken() -> None:
    assert ConcurrencyPolicy(value=2, min=1, max=3).max == 3
    assert BatchPolicy(size=2, min_size=2, max_size=2).size == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"steps": {"process": {"retry": {"max_attempts": 0}}}}',
            r"ConsumerPolicy.steps.process.retry.max_attempts must be",
        ),
        ('{"steps": {"proces": {}}}', "ConsumerPolicy.steps.proces is unknown; there are: fetch, process"),
        ('{"loop": {"concurrency": 8}}', "ConsumerPolicy.loop.concurrency must be an object, not 8"),
        ("[]", "ConsumerPolicy must be an object"),
        ("{", "ConsumerPolicy is not JSON"),
    ],
)
def test_json_is_refused_with_the_whole_way_to_the_field(text: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        ConsumerPolicy.from_json(text)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"steps": {"process": {"retry": {"max_attempts": 0}}}}, ("steps", "process", "retry", "max_attempts")),
        ({"loop": {"a.b": 1}}, ("loop", "a.b")),
        ({"loop": {"concurrency": {"value": 2, "min": 3}}}, ("loop", "concurrency", "min")),
        ([], ()),
    ],
)
def test_a_refusal_leads_to_the_field(body: object, path: tuple[str, ...]) -> None:
    with pytest.raises(PolicyError) as refused:
        ConsumerPolicy.from_dict(body)
    assert refused.value.path == path
    assert pickle.loads(pickle.dumps(refused.value)).path == path  # noqa: S301


def test_a_missing_key_takes_its_default() -> None:
    assert ConsumerPolicy.from_json('{"loop": {"batch": {"size": 7}}}').loop.concurrency.value == 1
    assert ProducerPolicy.from_json("{}") == ProducerPolicy()


def test_a_version_is_kept_without_what_is_not_set_so_that_older_releases_can_read_it() -> None:
    policy = ConsumerPolicy(loop=ConsumerLoopPolicy(batch=BatchPolicy(size=7), limit=9))
    kept = policy.to_stored()
    assert kept["loop"]["batch"] == {"size": 7, "interval": 0.0}
    assert kept["loop"]["limit"] == 9
    assert ConsumerPolicy.from_stored(kept) == policy
    assert ConsumerPolicy.from_stored(policy.to_dict()) == policy
    # Null where the default is a value says something.
    assert ProviderPolicy.from_stored(ProviderPolicy(timeout=None).to_stored()).timeout is None
    # What came later is kept where it says something.
    assert "breaker_scope" not in ProviderPolicy().to_stored()
    assert ProviderPolicy(breaker_scope="both").to_stored()["breaker_scope"] == "both"


def test_what_a_newer_release_has_added_is_ignored_in_a_version_and_nothing_else_is() -> None:
    newer = {"loop": {"batch": {"size": 7, "colour": "red"}}, "steps": {"rehearse": {}}, "mood": None}
    assert ConsumerPolicy.from_stored(newer) == ConsumerPolicy.from_dict({"loop": {"batch": {"size": 7}}})
    with pytest.raises(PolicyError, match=r"loop.batch.size must be a whole number of at least 1, not 0"):
        ConsumerPolicy.from_stored({"loop": {"batch": {"size": 0, "colour": "red"}}})
    with pytest.raises(PolicyError, match=r"loop.batch must be an object, not 7"):
        ConsumerPolicy.from_stored({"loop": {"batch": 7}})


def test_what_an_older_release_has_taken_and_is_too_much_now_is_as_much_as_may_be_in_a_version() -> None:
    older = {"breaker": {"open_cooldown_seconds": 999_999_999_999}, "retry_after_ceiling": 1e300}
    with pytest.raises(PolicyError, match=r"breaker.open_cooldown_seconds must be a number of seconds from 0 to 316,"):
        ProviderPolicy.from_dict(older)
    policy = ProviderPolicy.from_stored(older)
    assert (policy.breaker.open_cooldown_seconds, policy.retry_after_ceiling) == (3660 * 86400, 3660 * 86400)
    with pytest.raises(PolicyError, match="retry_after_ceiling"):
        ProviderPolicy.from_stored({"retry_after_ceiling": "soon"})


def test_defaults_are_those_of_the_specification() -> None:
    assert RetryPolicy().to_dict() == {
        "max_attempts": 1,
        "timeout": None,
        "backoff": 0.0,
        "backoff_multiplier": 2.0,
        "backoff_cap": 0.0,
    }
    loop = ConsumerPolicy().loop
    assert (loop.concurrency.value, loop.batch.size, loop.streaming) == (1, 1, False)
    assert [EmptyQueuePolicy().delay(n) for n in (0, 1, 2, 9)] == [0.1, 0.2, 0.4, 5.0]


def test_policies_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        RetryPolicy().max_attempts = 2  # type: ignore[misc]


retries = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    timeout=st.none() | st.floats(0.001, 1e6),
    backoff=st.floats(0, 1e6),
    backoff_multiplier=st.floats(1, 100),
    backoff_cap=st.floats(0, 1e6),
)


@given(retries, st.integers(1, 50), st.booleans(), st.dictionaries(st.text(), st.integers()))
def test_json_goes_out_and_in_without_loss(retry: RetryPolicy, size: int, flag: bool, extra: dict[str, int]) -> None:  # noqa: FBT001
    values = {
        "loop": {"batch": {"size": size}, "streaming": flag},
        "steps": {"fetch": {"retry": retry.to_dict(), "extra": extra}, "process": {"retry": retry.to_dict()}},
    }
    policy = ConsumerPolicy.from_dict(values)
    assert ConsumerPolicy.from_json(policy.to_json()) == policy
    assert policy.steps.process.retry == retry
    assert json.loads(policy.to_json())["loop"]["batch"]["size"] == size


@pytest.mark.parametrize(
    ("retry", "backoff", "multiplier", "cap", "delay"),
    [
        (0, 1.0, 2.0, 0.0, 1.0),
        (1, 1.0, 2.0, 0.0, 2.0),
        (3, 0.5, 3.0, 0.0, 13.5),
        (3, 0.5, 3.0, 10.0, 10.0),
        (0, 5.0, 2.0, 3.0, 3.0),
        (4, 0.0, 2.0, 3.0, 0.0),
        (2, 1.5, 1.0, 0.0, 1.5),
        (10**6, 1.0, 2.0, 60.0, 60.0),
        (10**6, 1.0, 2.0, 0.0, sys.float_info.max),
        (1023, 4.0, 2.0, 0.0, sys.float_info.max),
        (10**6, 1.0, 2, 60, 60),
    ],
)
def test_the_wait_is_the_backoff_times_the_multiplier_to_the_power_of_the_retry_clamped(
    retry: int, backoff: float, multiplier: float, cap: float, delay: float
) -> None:
    assert exponential(retry, backoff=backoff, multiplier=multiplier, cap=cap) == delay


@given(retries, st.integers(0, 10**6))
def test_no_wait_is_negative_endless_or_above_its_cap(retry: RetryPolicy, number: int) -> None:
    delay = retry.delay(number)
    assert 0 <= delay <= sys.float_info.max
    assert retry.backoff_cap == 0 or delay <= retry.backoff_cap


def test_every_policy_is_a_public_name() -> None:
    assert engines.RetryPolicy is RetryPolicy
    assert "ConsumerPolicy" in dir(engines)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = engines.Nothing


def test_a_policy_is_not_changed_through_what_it_was_made_of_or_has_told() -> None:
    given = {"region": ["north"]}
    policy = FetchPolicy(extra=given)
    read = FetchPolicy.from_dict({"extra": given})
    given["region"].append("south")
    given["more"] = []
    policy.to_dict()["extra"]["region"].append("west")
    assert policy.extra == read.extra == {"region": ["north"]}
