"""The rules of the boundary as tables: what a fact is, how the frontier moves, what gates do, who is needed when."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from ergon_site.access.core import json_text
from facts.core import drafts, gates, watching
from facts.core.drafts import Reference
from facts.core.errors import InvalidFactError, UnusableZoneError
from facts.core.gates import Gate
from facts.core.limits import Limits, limits_in
from facts.core.watching import Flow, Retention, Worry

ENVELOPE = {"message_id": "m", "from_zone": "a", "to_zone": "b", "produced_at_unix_ms": 0}
FACT = {"subject": "k:i", "predicate": "was_seen", "object_json": None}


def fault(envelope: Any = ENVELOPE, fact: Any = FACT, **more: Any) -> str:
    """Where the first fault is; empty for none."""
    try:
        drafts.check({"envelope": envelope, "fact": fact, **more}, Limits(labels=2))
    except InvalidFactError as error:
        return error.pointer
    return ""


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({}, ""),
        ({"produced_at_unix_ms": 1.0}, ""),
        ({"produced_at_unix_ms": 2**53 - 1}, ""),
        ({"produced_at_unix_ms": 2**53}, "produced_at_unix_ms"),
        ({"produced_at_unix_ms": 0.5}, "produced_at_unix_ms"),
        ({"produced_at_unix_ms": float("nan")}, "produced_at_unix_ms"),
        ({"produced_at_unix_ms": float("inf")}, "produced_at_unix_ms"),
        ({"produced_at_unix_ms": None}, "produced_at_unix_ms"),
        ({"to_zone": "a"}, "to_zone"),
        ({"message_id": "a\x7f"}, "message_id"),
        ({"message_id": "a\u2028b"}, "message_id"),
        ({"message_id": "a\ud800"}, "message_id"),
        ({"message_id": "no\u00a0break \u3000 \u0915\u094d\u200d\u0937 soft\u00adhyphen \ue000"}, ""),
        ({"from_zone": "Werk\u00a01", "to_zone": "\u0915\u094d\u200c\u0937"}, ""),
        ({"to_zone": "b\x85"}, "to_zone"),
        ({"correlation_id": "\u200d"}, ""),
        ({"correlation_id": "c", "object_schema": "s", "labels": {"a": "", "b": "x"}}, ""),
        ({"correlation_id": ""}, "correlation_id"),
        ({"labels": []}, "labels"),
        ({"labels": {"a": "", "b": "", "c": ""}}, "labels"),
        ({"labels": {"": ""}}, "labels/"),
        ({"labels": {"a~/": 1}}, "labels/a~0~1"),
        ({"labels": {5: "x"}}, "labels/5"),
        ({5: "x"}, "5"),
        ({"else": 1}, "else"),
    ],
)
def test_an_envelope_is_checked_field_by_field(changes: dict[Any, Any], pointer: str) -> None:
    assert fault({**ENVELOPE, **changes}) == (pointer and f"/envelope/{pointer}")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"subject": "k:scope/i d"}, ""),
        ({"subject": "k:i\u00a0d\u200d"}, ""),
        ({"subject": "k:a\u2029b"}, "subject"),
        ({"subject": "k:"}, "subject"),
        ({"subject": "k: i"}, "subject"),
        ({"subject": "a:b/c/d"}, "subject"),
        ({"subject": 5}, "subject"),
        ({"predicate": "was__seen"}, "predicate"),
        ({"predicate": "x" * 129}, "predicate"),
        ({"else": 1}, "else"),
    ],
)
def test_a_statement_is_checked_field_by_field(changes: dict[str, Any], pointer: str) -> None:
    assert fault(fact={**FACT, **changes}) == (pointer and f"/fact/{pointer}")


def test_what_is_missing_or_of_another_kind_is_named() -> None:
    assert fault({"message_id": "m"}) == "/envelope/from_zone"
    assert fault(fact=[]) == "/fact"
    assert fault(more=1) == "/more"
    with pytest.raises(InvalidFactError, match="the body must be an object"):
        drafts.check(5, Limits())


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, ()),
        ({"bucket": "b"}, ()),
        ({"bucket": 5, "key": "C minor"}, ()),
        ({"bucket": "b", "key": "k", "file_name": "f"}, ()),
        ({"bucket": "b", "key": "k", "digest": "d", "size": 1.0}, (Reference("b", "k", "d", 1),)),
        (
            {"bucket": "b", "key": "k", "digest": "d", "size": 1, "file_name": "f"},
            (Reference("b", "k", "d", 1),),
        ),
    ],
)
def test_a_bucket_and_a_key_and_what_is_said_of_the_bytes_are_a_reference(value: Any, found: Any) -> None:
    assert drafts.references_in({"object_json": value}) == found


@pytest.mark.parametrize(("part", "value"), [("size", True), ("size", "1"), ("digest", None), ("key", 5)])
def test_a_reference_has_all_its_parts(part: str, value: Any) -> None:
    whole = {"bucket": "b", "key": "k", "digest": "d", "size": 1}
    with pytest.raises(InvalidFactError) as caught:
        drafts.references_in({"object_json": whole | {part: value}})
    assert caught.value.pointer == f"/fact/object_json/{part}"


def test_the_frontier_stops_at_the_first_gap_and_never_goes_down() -> None:
    assert gates.advance(-1, [0, 1, 2, 4, 5]) == 2
    assert gates.advance(2, [3, 4, 5]) == 5
    assert gates.advance(5, [0, 1]) == 5


@given(st.lists(st.lists(st.integers(0, 30))))
def test_the_frontier_is_the_end_of_what_has_no_gap(batches: list[list[int]]) -> None:
    reached, known = -1, set[int]()
    for batch in batches:
        known.update(batch)
        reached = gates.advance(reached, known)
        assert set(range(reached + 1)) <= known
        assert reached + 1 not in known


def test_gates_close_after_failures_and_open_as_the_backlog_allows() -> None:
    assert gates.after_failure(Gate.NORMAL, gates.FAILURES - 1) is Gate.NORMAL
    assert gates.after_failure(Gate.NORMAL, gates.FAILURES) is Gate.AUTONOMOUS
    assert gates.after_success(Gate.AUTONOMOUS, gates.SMALL + 1) is Gate.RECONCILING
    assert gates.after_success(Gate.RECONCILING, gates.SMALL) is Gate.NORMAL
    assert gates.after_success(Gate.NORMAL, 10**9) is Gate.NORMAL
    assert gates.reopened(gates.SMALL + 1) is Gate.RECONCILING
    assert gates.reopened(0) is Gate.NORMAL
    assert gates.may_try(Gate.AUTONOMOUS, is_closed_by_person=False)
    assert not gates.may_try(Gate.AUTONOMOUS, is_closed_by_person=True)


def test_limits_are_told_by_name_and_none_is_made_up() -> None:
    assert limits_in({"subject": 5}) == Limits(subject=5)
    for wrong in ({"sbject": 5}, {"subject": 0}, {"subject": True}, {"subject": "5"}):
        with pytest.raises(ValueError, match=r"sbject|above 0"):
            limits_in(wrong)


STILL = Flow(backlog=0, lag=0.0, silence=0.0)


@pytest.mark.parametrize(
    ("gate", "alarm", "fill", "overdue", "flow", "worries"),
    [
        (Gate.NORMAL, "", None, 0.0, STILL, []),
        (Gate.NORMAL, "", 79.9, 60.0, Flow(backlog=10_000, lag=1.0, silence=60.0), []),
        (Gate.NORMAL, "", 80.0, 0, Flow(backlog=10_001, lag=1.1, silence=0), [Worry.FILL, Worry.BACKLOG, Worry.LAG]),
        (Gate.NORMAL, "", None, 60.1, Flow(backlog=1, lag=0.0, silence=60.1), [Worry.RETENTION, Worry.SILENCE]),
        (Gate.NORMAL, "", None, 0.0, Flow(backlog=0, lag=0.0, silence=99.0), []),
        (Gate.RECONCILING, "", None, 0.0, STILL, [Worry.GATE]),
        (Gate.AUTONOMOUS, "other bytes", None, 0.0, STILL, [Worry.ALARM, Worry.GATE]),
    ],
)
def test_a_boundary_needs_a_person_beyond_its_warning_lines(
    gate: Gate, alarm: str, fill: float | None, overdue: float, flow: Flow, worries: list[Worry]
) -> None:
    assert list(watching.of_boundary(gate, alarm, fill, flow, Retention(overdue=overdue))) == worries


def test_what_is_over_its_time_is_held_back_by_those_who_need_it_first() -> None:
    needs = {"consumer erp": 7, "consumer mes": 5, "the forward buffer": 5}
    held_back = Retention(overdue=10.0, held_back_by=("consumer mes", "the forward buffer"))
    assert watching.retention(90.0, 100.0, needs) == held_back
    assert watching.retention(100.0, 100.0, needs) == watching.retention(90.0, 100.0, {}) == Retention()


def test_the_nearer_ceiling_tells_how_full_a_buffer_is() -> None:
    assert watching.fullest(watching.percent(5, 10), watching.percent(9, 10), watching.percent(1, None)) == 90.0
    assert watching.fullest(None, None) is None


def test_a_name_that_occurs_twice_is_refused_where_it_matters() -> None:
    assert json_text.parse(b'{"a": 1, "a": 2}') == {"a": 2}
    assert json_text.parse(b'{"a": {"b": 1}, "b": 2}', refuses_repeats=True) == {"a": {"b": 1}, "b": 2}
    with pytest.raises(json_text.MalformedJSONError, match="'b' occurs twice"):
        json_text.parse(b'{"a": {"b": 1, "c": 2, "b": 1}}', refuses_repeats=True)


def test_a_zone_that_a_boundary_needs_is_named_for_those_who_can_create_it() -> None:
    error = UnusableZoneError("there is no zone named 'Mars'", "Mars")
    assert (error.code, error.zone, str(error)) == ("unknown_zone", "Mars", "there is no zone named 'Mars'")
