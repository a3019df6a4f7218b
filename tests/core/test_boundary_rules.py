"""The boundary's rules: frontier, gates, limits, what a fact must be, errors by their codes."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from facts.core import drafts, gates, limits, watching
from facts.core.drafts import Reference
from facts.core.errors import (
    AlarmError,
    BufferFullError,
    FactError,
    InvalidFactError,
    ProvisioningError,
    UnauthenticatedError,
    error_for,
)
from facts.core.gates import FAILURES, LONGEST_WAIT, SILENCE, SMALL, Gate, advance
from facts.core.limits import Limits, limits_in
from facts.core.watching import UNHEARD, Flow, Worry
from tests.facts.drafts import draft


def test_the_frontier_stops_below_the_first_gap_and_goes_on_when_it_is_filled() -> None:
    assert advance(-1, [0, 1, 2, 4, 5]) == 2
    assert advance(2, [4, 5, 3]) == 5
    assert advance(5, []) == 5
    assert advance(5, [1, 2]) == 5


@given(st.sets(st.integers(0, 60)), st.integers(-1, 60))
def test_the_frontier_never_goes_down_and_never_passes_a_gap(confirmed: set[int], frontier: int) -> None:
    reached = advance(frontier, confirmed)
    assert reached >= frontier
    assert set(range(frontier + 1, reached + 1)) <= confirmed
    assert reached + 1 not in confirmed


@given(st.permutations(list(range(30))), st.lists(st.integers(1, 10), min_size=1))
def test_in_whatever_order_facts_arrive_the_frontier_ends_at_the_same_place(order: list[int], sizes: list[int]) -> None:
    frontier, stored = -1, set[int]()
    before = []
    for start in range(0, len(order), sizes[0]):
        stored |= set(order[start : start + sizes[0]])
        frontier = advance(frontier, stored)
        before.append(frontier)
    assert frontier == 29
    assert before == sorted(before)


def test_failures_close_a_gate_only_when_there_are_enough_of_them() -> None:
    assert gates.after_failure(Gate.NORMAL, FAILURES - 1) is Gate.NORMAL
    assert gates.after_failure(Gate.NORMAL, FAILURES) is Gate.AUTONOMOUS
    assert gates.after_failure(Gate.RECONCILING, 1) is Gate.RECONCILING


def test_a_failure_after_long_silence_closes_a_gate_however_few_there_were() -> None:
    assert gates.after_failure(Gate.NORMAL, 1, SILENCE - 1) is Gate.NORMAL
    assert gates.after_failure(Gate.NORMAL, 1, SILENCE) is Gate.AUTONOMOUS


def test_the_head_of_a_source_is_unknown_once_its_last_answer_is_old() -> None:
    assert (watching.unheard(0.0), watching.unheard(UNHEARD)) == (0.0, 0.0)
    assert watching.unheard(UNHEARD + 1) == UNHEARD + 1


def test_a_consumer_is_told_of_when_it_holds_back_truncation() -> None:
    flow = Flow(backlog=1, lag=0.0, silence=0.0)
    assert list(watching.of_consumer(flow)) == []
    assert list(watching.of_consumer(flow, 61.0)) == [Worry.HOLDING]


def test_an_alarm_knows_the_offsets_that_it_is_about() -> None:
    assert (AlarmError("no").offset, AlarmError("no").last) == (None, None)
    assert (AlarmError("no", offset=3).last, AlarmError("no", offset=3, last=9).last) == (3, 9)
    assert isinstance(error_for("alarm", "told by a peer"), AlarmError)


def test_a_notice_is_a_fact_that_says_what_was_skipped_and_why() -> None:
    made = [drafts.notice_of_skip(("A", "B"), offset, 1, alarm="a", by="ada", reason="r") for offset in (7, 7, 8)]
    for one in made:
        drafts.check(one, Limits())
    first, again, other = (one["envelope"]["message_id"] for one in made)
    assert first == again != other
    assert made[0]["fact"]["object_json"] == {"offset": 7, "alarm": "a", "by": "ada", "reason": "r"}


def test_the_first_success_opens_it_and_a_small_backlog_is_normal() -> None:
    assert gates.after_success(Gate.AUTONOMOUS, SMALL + 1) is Gate.RECONCILING
    assert gates.after_success(Gate.RECONCILING, SMALL) is Gate.NORMAL
    assert gates.after_success(Gate.NORMAL, SMALL + 1) is Gate.NORMAL
    assert (gates.reopened(SMALL), gates.reopened(SMALL + 1)) == (Gate.NORMAL, Gate.RECONCILING)


def test_what_failures_have_closed_is_tried_on_and_what_a_person_or_an_alarm_has_closed_is_not() -> None:
    assert gates.may_try(Gate.AUTONOMOUS, is_closed_by_person=False)
    assert not gates.may_try(Gate.AUTONOMOUS, is_closed_by_person=True)
    assert gates.may_try(Gate.RECONCILING, is_closed_by_person=False)
    assert not gates.may_try(Gate.NORMAL, is_closed_by_person=False, is_alarmed=True)


def test_tries_come_further_apart_up_to_a_limit() -> None:
    waits = [gates.wait_after(failures) for failures in (1, 2, 3, 1000)]
    assert waits == [0.2, 0.4, 0.8, LONGEST_WAIT]


def test_limits_are_those_of_the_document_unless_they_are_told() -> None:
    assert limits_in({}) == Limits()
    assert limits_in({"subject": 10}).subject == 10


@pytest.mark.parametrize(
    "told",
    [
        *({"topic": 1}, {"subject": 0}, {"subject": True}, {"subject": "5"}),
        *({"message_id": 1001}, {"subject": 2001}, {"predicate": 501}, {"object_json": 2**24 + 1}, {"artifact": 2**53}),
    ],
)
def test_a_limit_that_is_none_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(told))):
        limits_in(told)


def test_limits_that_can_be_kept_are_taken_as_they_are() -> None:
    told = {"message_id": 1000, "subject": 2000, "predicate": 500, "labels": 10**6}
    assert limits.checked(told) is told
    with pytest.raises(ValueError, match="may have at most 1,000 as 'message_id', not 5,000"):
        limits.checked({"message_id": 5000})


def test_a_cause_may_be_as_long_as_a_message_id_and_a_body_longer_than_what_is_kept() -> None:
    assert (Limits().causation_id, Limits(message_id=10).causation_id, Limits(message_id=900).causation_id) == (
        256,
        256,
        900,
    )
    assert (Limits().body, Limits(object_json=2**22).body) == (2**21, 2**24)
    drafts.check(draft(1, causation_id="c" * 900), Limits(message_id=900))
    with pytest.raises(InvalidFactError, match="causation_id must be a text of 1 to 256"):
        drafts.check(draft(1, causation_id="c" * 257), Limits())


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"message_id": "雪" * 854}, "/envelope/message_id"),
        ({"causation_id": "雪" * 854}, "/envelope/causation_id"),
        ({"fact": {"subject": f"k:{'雪' * 853}"}}, "/fact/subject"),
    ],
)
def test_a_name_that_no_index_holds_is_refused(changes: dict[str, Any], pointer: str) -> None:
    drafts.check_indexed(draft("雪" * 800))
    with pytest.raises(InvalidFactError, match="at most 2,560 bytes") as caught:
        drafts.check_indexed(draft(1, **changes))
    assert caught.value.pointer == pointer


def test_a_code_stands_for_its_error() -> None:
    assert isinstance(error_for("buffer_full", "full"), BufferFullError)
    assert isinstance(error_for("unauthenticated", "who?"), UnauthenticatedError)
    other = error_for("throttled", "slowly", "/x")
    assert (type(other), other.code, other.message, other.pointer) == (FactError, "throttled", "slowly", "/x")
    assert (FactError.code, ProvisioningError("no").may_pass) == ("fact_error", False)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"correlation_id": "c", "causation_id": "d", "labels": {"a": "b"}, "object_media_type": "text/plain"},
        {"produced_at_unix_ms": 1741248600000.0},
        {"fact": {"subject": "work_order:plant a/WO 1"}},
        {"object_json": None},
        {"object_json": [1, "two", {"three": 3.5}]},
    ],
)
def test_what_is_a_fact_is_accepted(changes: dict[str, Any]) -> None:
    drafts.check(draft(1, **changes), Limits())


@pytest.mark.parametrize(
    ("broken", "pointer"),
    [
        ([], ""),
        ({"envelope": {}}, "/fact"),
        ({"envelope": [], "fact": {}}, "/envelope"),
        ({**draft(1), "more": 1}, "/more"),
        (draft(1, message_id=""), "/envelope/message_id"),
        (draft(1, message_id="a\nb"), "/envelope/message_id"),
        (draft(1, message_id=5), "/envelope/message_id"),
        (draft(1, to_zone="Plant A"), "/envelope/to_zone"),
        (draft(1, produced_at_unix_ms=True), "/envelope/produced_at_unix_ms"),
        (draft(1, produced_at_unix_ms=0.5), "/envelope/produced_at_unix_ms"),
        (draft(1, produced_at_unix_ms=-1), "/envelope/produced_at_unix_ms"),
        (draft(1, labels=[]), "/envelope/labels"),
        (draft(1, labels={str(n): "" for n in range(33)}), "/envelope/labels"),
        (draft(1, labels={"": "x"}), "/envelope/labels/"),
        (draft(1, labels={"a/b~": 1}), "/envelope/labels/a~1b~0"),
        (draft(1, correlation_id=""), "/envelope/correlation_id"),
        (draft(1, unheard=1), "/envelope/unheard"),
        (draft(1, fact={"subject": "nothing"}), "/fact/subject"),
        (draft(1, fact={"predicate": "Camel"}), "/fact/predicate"),
    ],
)
def test_what_is_no_fact_is_refused_by_the_name_of_its_fault(broken: Any, pointer: str) -> None:
    with pytest.raises(InvalidFactError) as caught:
        drafts.check(broken, Limits())
    assert caught.value.pointer == pointer


def test_a_bucket_and_a_key_with_a_digest_or_a_size_refer_to_an_artifact() -> None:
    reference = {"bucket": "b", "key": "k", "digest": "sha256:0", "size": 5}
    found = (Reference(**reference),)  # type: ignore[arg-type]
    assert drafts.references_in({"object_json": reference}) == found
    assert drafts.references_in({"object_json": {**reference, "size": 5.0}}) == found
    assert drafts.references_in({"object_json": {"bucket": "b"}}) == ()
    assert drafts.references_in({"object_json": "b"}) == ()
    for left_out in ("digest", "size"):
        half = {name: reference[name] for name in reference if name != left_out}
        with pytest.raises(InvalidFactError, match=f"{left_out} must be"):
            drafts.references_in({"object_json": half})
        # Deeper it may be anything: who lists files of another storage says so much of them.
        assert drafts.references_in({"object_json": {"files": [half]}}) == ()
        assert drafts.references_in({"object_json": half}, is_stored=True) == ()
    for broken in ({**reference, "size": True}, {**reference, "size": 0.5}, {**reference, "digest": None}):
        for place in (broken, [broken], {"a": {"b": broken}}):
            with pytest.raises(InvalidFactError, match="as the answer to the upload has it"):
                drafts.references_in({"object_json": place})
            assert drafts.references_in({"object_json": place}, is_stored=True) == ()


def test_references_are_found_at_any_depth_with_the_way_to_them() -> None:
    reference = {"bucket": "b", "key": "k", "digest": "sha256:0", "size": 5}
    other = {**reference, "key": "l"}
    stated = {**reference, "files": [other, {"of/it": {"deep": [[reference]]}}], "note": "b", "count": 2}
    assert [one.at for one in drafts.references_in({"object_json": stated})] == [
        "/fact/object_json",
        "/fact/object_json/files/0",
        "/fact/object_json/files/1/of~1it/deep/0/0",
    ]
    assert [one.name for one in drafts.references_in({"object_json": [other, reference]})] == [("b", "l"), ("b", "k")]


def test_only_a_text_with_both_names_is_searched_for_references() -> None:
    assert drafts.may_refer('{"fact":{"object_json":{"bucket":"b","digest":"d","key":"k","size":1}}}')
    assert not drafts.may_refer('{"fact":{"object_json":{"bucket":"b"}}}')
    assert not drafts.may_refer('{"fact":{"object_json":"a key in a bucket"}}')


def test_what_is_optional_may_stand_alone() -> None:
    envelope = {
        "message_id": "a",
        "from_zone": "A",
        "to_zone": "B",
        "produced_at_unix_ms": 1,
        "correlation_id": "order:1",
    }
    drafts.check({"envelope": envelope, "fact": {"subject": "a:b", "predicate": "is", "object_json": None}}, Limits())
