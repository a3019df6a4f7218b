"""What a function returned is kept as JSON, and given back the same; what cannot be is refused."""

import json
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from providers.core.request import caller_in
from providers.core.values import NotKeptError, dumped, loaded

AT = datetime(2026, 3, 1, 12, 30, 15, 250, tzinfo=UTC)


def again(value: Any) -> Any:
    return loaded(json.loads(json.dumps(dumped(value), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -7, 1.5, "tea\x00\ud800", [], {}, [1, [2, {"a": None}]]),
        *(float("inf"), float("-inf")),
        *((), (1, ("a",)), {1, 2}, frozenset({"x"}), b"\x00\xff", {1: "one", (2, 3): "pair", None: 0}),
        *({"$": "date", "value": "no date"}, {"$": {"$": 1}}),
        *(AT, AT.replace(tzinfo=None), AT.astimezone(timezone(timedelta(hours=2))), AT.date(), time(1, 2, 3)),
        *(timedelta(days=-1, microseconds=5), Decimal("1.50"), UUID(int=7)),
        {"ranks": [(1, date(2026, 3, 1)), (2, None)]},
    ],
)
def test_a_value_comes_back_the_same(value: Any) -> None:
    found = again(value)
    assert (found, type(found)) == (value, type(value))


def test_what_is_no_number_or_too_long_a_one_comes_back_as_such() -> None:
    assert str(again(float("nan"))) == "nan"
    assert again(-(1 << 20_000)) == -(1 << 20_000)


def test_what_json_knows_is_kept_as_it_is() -> None:
    value = {"rank": 3, "of": [1, 2.5, "x", None, True]}
    assert dumped(value) == value


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.dates()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(scalars, inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(values)
def test_any_value_of_known_kinds_comes_back_the_same(value: Any) -> None:
    assert again(value) == value


class Pair(NamedTuple):
    one: int
    two: int


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize("value", [Pair(1, 2), Level.LOW, OrderedDict(), object(), [object()], {"a": {Pair(1, 2)}}])
def test_what_would_come_back_as_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(NotKeptError, match="of the class"):
        dumped(value)


def test_what_has_no_end_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(NotKeptError, match="too deeply"):
        dumped(ring)


@pytest.mark.parametrize(
    ("transaction", "kept"),
    [(None, None), ("order-7", None), ("order-8", "order-8"), ("x" * 201, None), ("a\x00b", None)],
)
def test_a_call_names_its_transaction_only_if_its_correlation_id_is_another(
    transaction: str | None, kept: str | None
) -> None:
    assert caller_in(transaction, "order-7") == kept
