"""What a retry policy comes to: drawn waits, the end in words, names that are fit."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from engines.core import naming, retry_preview
from engines.core.policy import ConsumerPolicy, ProducerPolicy, RetryPolicy
from engines.core.rules import Policy
from ergon_site.access.core import durations


def leaves(kind: Any) -> Iterator[Any]:
    for one in fields(kind):
        yield one
        if "kind" in one.metadata:
            yield from leaves(one.metadata["kind"])


@pytest.mark.parametrize("kind", [ConsumerPolicy, ProducerPolicy])
def test_every_field_of_a_policy_says_what_it_means(kind: type[Policy]) -> None:
    unsaid = [one.name for one in leaves(kind) if not one.metadata["meaning"].endswith(".")]
    assert unsaid == []


def test_numbers_say_what_they_count() -> None:
    counted = [one for one in leaves(ConsumerPolicy) if one.type in (int, int | None, float, float | None)]
    assert counted
    assert [one.name for one in counted if not one.metadata["unit"]] == []


def test_waits_are_drawn_beside_the_longest() -> None:
    drawn = retry_preview.preview(RetryPolicy(max_attempts=4, backoff=1, backoff_multiplier=2))
    assert [(wait.seconds, wait.share) for wait in drawn.waits] == [(1, 0.25), (2, 0.5), (4, 1)]
    assert [str(wait) for wait in drawn.waits] == ["1 s", "2 s", "4 s"]
    assert drawn.not_drawn == 0


def test_waits_of_nothing_have_no_length() -> None:
    drawn = retry_preview.preview(RetryPolicy(max_attempts=3))
    assert [wait.share for wait in drawn.waits] == [0, 0]


def test_many_attempts_are_counted_and_not_drawn() -> None:
    drawn = retry_preview.preview(RetryPolicy(max_attempts=10**9, backoff=1, backoff_cap=60))
    assert len(drawn.waits) == retry_preview.DRAWN - 1
    assert drawn.not_drawn == 10**9 - retry_preview.DRAWN
    assert "It practically never gives up." in drawn.sentence


@pytest.mark.parametrize(
    ("retry", "sentence"),
    [
        (RetryPolicy(), "One attempt of any length, no retries."),
        (RetryPolicy(timeout=30), "One attempt of at most 30 s, no retries."),
        (
            RetryPolicy(max_attempts=3, timeout=30, backoff=1),
            "3 attempts of at most 30 s, 3 s of waiting in between. It gives up after at most 1 min 33 s.",
        ),
        (
            RetryPolicy(max_attempts=2, backoff=90),
            (
                "2 attempts of any length, 1 min 30 s of waiting in between. "
                "The total time depends on how long the attempts take."
            ),
        ),
    ],
)
def test_the_end_is_said_in_words(retry: RetryPolicy, sentence: str) -> None:
    assert retry_preview.preview(retry).sentence == sentence


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (0.05, "50 ms"),
        (1.5, "1.5 s"),
        (59, "59 s"),
        (60, "1 min"),
        (121.5, "2 min 1.5 s"),
        (3600, "1 h"),
        (4147, "1 h 9 min"),
        (86400, "1 d"),
        (100_000, "1 d 3 h"),
        (1e300, "forever"),
    ],
)
def test_a_duration_is_told_in_units_that_read_well(seconds: float, told: str) -> None:
    assert durations.exact_span(seconds) == told


@pytest.mark.parametrize(
    ("name", "is_fit"),
    [("a", True), ("invoices.import-2_x", True), ("x" * 100, True)]
    + [(name, False) for name in ("", "x" * 101, "a b", "-a", "a/b", "ä", "a\n")],
)
def test_a_name_is_fit_for_addresses_commands_and_logs(name: str, is_fit: bool) -> None:  # noqa: FBT001
    refusal = naming.refusal("pipeline", name)
    assert (refusal is None) is is_fit
    assert is_fit or "a pipeline's name has 1 to 100 letters" in str(refusal)
