"""The unit of work."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from engines import ExceptionType, Transaction, TransactionException

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.text(min_size=1), values, st.dictionaries(st.text(), values, max_size=3), st.none() | st.text())
def test_a_transaction_goes_out_and_in_as_json_without_loss(
    name: str, payload: object, metadata: dict[str, object], correlation: str | None
) -> None:
    transaction = Transaction(name, payload, metadata, correlation_id=correlation, trace_context={"traceparent": "x"})
    assert Transaction.from_json(transaction.to_json()) == transaction


@pytest.mark.parametrize("wrong", ["", None, 7])
def test_an_id_is_a_text_that_is_not_empty(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"Transaction\.id"):
        Transaction(wrong, {})  # type: ignore[arg-type]


def test_a_transaction_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Transaction("a", 1).payload = 2  # type: ignore[misc]


def test_it_knows_when_it_was_made() -> None:
    assert Transaction("a", 1).created_at <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "must be a JSON object"),
        ('{"id": "a"}', "needs the field 'payload'"),
        ('{"id": "a", "payload": 1, "colour": 2}', "no field 'colour'"),
        ('{"id": "", "payload": 1}', "must be a text"),
        ('{"id": "a", "payload": 1, "created_at": null}', "created_at must be a time"),
        ('{"id": "a", "payload": 1, "trace_context": "x"}', "trace_context must be an object"),
        ('{"id": "a", "payload": 1, "metadata": 5}', "metadata must be an object"),
    ],
)
def test_json_that_is_no_transaction_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Transaction.from_json(text)


def test_a_transaction_exception_is_system_unless_it_says_otherwise() -> None:
    assert TransactionException().category is ExceptionType.SYSTEM
    error = TransactionException("no stock", ExceptionType.BUSINESS, transaction_id="a")
    assert (str(error), error.category, error.transaction_id) == ("no stock", ExceptionType.BUSINESS, "a")
