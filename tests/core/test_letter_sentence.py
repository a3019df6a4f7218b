"""What the page of a dead letter begins with."""

import pytest

from engines.core import explanation

LETTER = {
    "state": "open",
    "step": "process",
    "category": "TIMEOUT",
    "age": 7300.0,
    "settled_by": "",
    "settled_ago": 0.0,
    "reason": "",
}
SETTLED = {**LETTER, "state": "replayed", "settled_by": "ada", "settled_ago": 90.0}


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (LETTER, "unresolved for 2 h: a TIMEOUT failure in process needs a decision"),
        (SETTLED, "replayed by ada 90 s ago"),
        ({**SETTLED, "reason": "the bank is back"}, "replayed by ada 90 s ago (reason: the bank is back)"),
    ],
)
def test_a_dead_letter_is_told_in_one_sentence(facts: dict[str, object], sentence: str) -> None:
    assert explanation.of_letter(facts) == sentence
