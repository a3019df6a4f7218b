"""Values whose fields carry rules: the ways through them, whatever they are made of."""

from typing import Any

import pytest

from engines.core.policy import ConsumerPolicy, FetchPolicy
from ergon_site.access.core import ruled


def test_leaves_are_all_fields_but_parts_each_with_its_way() -> None:
    assert dict(ruled.leaves(FetchPolicy)).keys() == {
        "retry.max_attempts",
        "retry.timeout",
        "retry.backoff",
        "retry.backoff_multiplier",
        "retry.backoff_cap",
        "extra",
        "connector_name",
    }
    assert list(ruled.parts(FetchPolicy)) == ["retry"]


def test_a_rule_is_found_at_the_end_of_its_way() -> None:
    assert ruled.rule(ConsumerPolicy, "steps.fetch")["kind"] is FetchPolicy
    assert ruled.rule(ConsumerPolicy, "steps.fetch.retry.max_attempts")["unit"] == "attempts"


def test_values_by_their_ways_come_together_as_the_body_they_were_taken_from() -> None:
    body = ConsumerPolicy().to_dict()
    values = {path: ruled.at(body, path) for path, _ in ruled.leaves(ConsumerPolicy)}
    assert ruled.nested(values) == body


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("steps.process.retry.max_attempts", 1, "1 attempt"),
        ("steps.process.retry.max_attempts", 1200, "1,200 attempts"),
        ("steps.process.retry.timeout", 90.0, "1 min 30 s"),
        ("steps.process.retry.timeout", None, "none"),
        ("steps.process.retry.backoff_multiplier", 2.5, "2.5 times"),
        ("loop.streaming", True, "on"),
        ("loop.streaming", False, "off"),
        ("steps.fetch.extra", {"queue": "ü"}, '{"queue": "ü"}'),
        ("steps.fetch.connector_name", "erp", "erp"),
        ("a.field.of.before", 7, "7"),
    ],
)
def test_values_are_told_with_their_units(path: str, value: Any, words: str) -> None:
    assert ruled.words(ConsumerPolicy, path, value) == words
