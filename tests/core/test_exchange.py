"""What a client of the boundary asks, how often, and what it makes of the answers: played without a network."""

import io
import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from facts.core.errors import (
    BufferFullError,
    ConflictingDuplicateError,
    FactError,
    InvalidFactError,
    ProvisioningError,
    UnreachableError,
)
from facts.core.exchange import Exchange
from facts.core.steps import Answer, Appended, Ask, Fetched, Hand, NoAnswerError, Page, Pause, Reader, Stored
from tests.facts.drafts import draft

APPENDED = {"offset": 4, "message_id": "order-1-released", "duplicate": False}


def said(body: Any, status: int = 200, retry_after: str | None = None) -> Answer:
    return Answer(status, json.dumps(body).encode(), retry_after)


def problem(status: int, code: str, **members: Any) -> Answer:
    return said({"code": code, "detail": f"{code}!", **members}, status)


def page(*offsets: int, cursor: int = -1) -> Answer:
    return said({"facts": [{"offset": offset, "envelope": {}, "fact": {}} for offset in offsets], "cursor": cursor})


def play(steps: Any, *replies: Any) -> tuple[list[Any], Any]:
    """Perform the steps with these replies to what is asked and handed; the steps, and what came of them."""
    seen: list[Any] = []
    left = iter(replies)
    give, value = steps.send, None
    while True:
        try:
            step = give(value)
        except StopIteration as end:
            return seen, end.value
        except FactError as error:
            return seen, error
        seen.append(step)
        give, value = _reply(steps, step, left)


def _reply(steps: Any, step: Any, left: Iterator[Any]) -> tuple[Any, Any]:
    if isinstance(step, Pause):
        return steps.send, None
    reply = next(left)
    if callable(reply):
        reply = reply()
    return (steps.throw, reply) if isinstance(reply, Exception) else (steps.send, reply)


def names(seen: list[Any]) -> list[str]:
    return [f"Pause {step.seconds}" if isinstance(step, Pause) else type(step).__name__ for step in seen]


silent = NoAnswerError("connection refused")
broken = Answer(502, b"<html>")


def test_an_append_that_is_confirmed_is_asked_once() -> None:
    seen, result = play(Exchange().append(draft(1)), said(APPENDED, 201))
    assert result == Appended(4, "order-1-released", is_duplicate=False)
    assert names(seen) == ["Ask"]
    assert json.loads(seen[0].content) == draft(1)


@pytest.mark.parametrize("failure", [silent, broken, problem(503, "unavailable"), problem(429, "buffer_full")])
def test_after_a_failure_the_same_is_asked_up_to_three_times_more(failure: Any) -> None:
    seen, result = play(Exchange().append(draft(1)), failure, failure, failure, said(APPENDED))
    assert result.offset == 4
    assert names(seen) == ["Ask", "Pause 0.0", "Ask", "Pause 0.1", "Ask", "Pause 0.2", "Ask"]
    assert len({step.content for step in seen if isinstance(step, Ask)}) == 1


@pytest.mark.parametrize(
    ("failure", "error"),
    [(silent, UnreachableError), (broken, UnreachableError), (problem(429, "buffer_full"), BufferFullError)],
)
def test_after_the_third_retry_it_gives_up_with_the_last_error(failure: Any, error: type[FactError]) -> None:
    seen, result = play(Exchange().append(draft(1)), *[failure] * 4)
    assert isinstance(result, error)
    assert sum(isinstance(step, Ask) for step in seen) == 4


@pytest.mark.parametrize(
    "refusal",
    [problem(409, "conflicting_duplicate"), problem(403, "zone_not_authorized"), Answer(404, b"not json"), said([])],
)
def test_what_is_refused_is_not_asked_again(refusal: Answer) -> None:
    seen, result = play(Exchange().append(draft(1)), refusal)
    assert names(seen) == ["Ask"]
    assert isinstance(result, FactError)


def test_a_problem_becomes_the_error_of_its_code_with_the_field_at_fault_and_the_time_to_wait() -> None:
    at = {"errors": [{"pointer": "/envelope/message_id"}]}
    _, error = play(Exchange().append(draft(1)), problem(409, "conflicting_duplicate", **at))
    assert isinstance(error, ConflictingDuplicateError)
    assert (error.message, error.pointer) == ("conflicting_duplicate!", "/envelope/message_id")
    full = said({"code": "buffer_full", "detail": "full"}, 429, "7")
    _, error = play(Exchange().append(draft(1)), *[full] * 4)
    assert error.retry_after == 7


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
def test_what_is_no_json_is_not_sent(value: Any) -> None:
    seen, error = play(Exchange().append(draft(1, object_json=value)))
    assert (seen, type(error)) == ([], InvalidFactError)


def test_many_are_sent_a_thousand_at_a_time_and_answered_each_for_itself() -> None:
    refused = {"status": 409, "problem": {"code": "conflicting_duplicate", "detail": "no"}}
    first = said({"results": [{"status": 201, **APPENDED}] * 999 + [refused]})
    seen, results = play(
        Exchange().append_many(draft(n) for n in range(1001)), first, said({"results": [{"status": 200, **APPENDED}]})
    )
    assert [len(json.loads(step.content)["facts"]) for step in seen] == [1000, 1]
    assert (len(results), type(results[999]), results[1000].offset) == (1001, ConflictingDuplicateError, 4)


def test_many_large_ones_are_sent_in_several_requests() -> None:
    large = [draft(n, object_json="x" * 1024 * 1024) for n in range(5)]
    answers = [said({"results": [{"status": 201, **APPENDED}] * count}) for count in (3, 2)]
    seen, results = play(Exchange().append_many(large), *answers)
    assert [len(json.loads(step.content)["facts"]) for step in seen] == [3, 2]
    assert len(results) == 5


def test_what_is_too_large_for_the_boundary_is_sent_in_parts_down_to_the_one_at_fault() -> None:
    large = problem(413, "payload_too_large")
    one = said({"results": [{"status": 201, **APPENDED}]})
    seen, results = play(Exchange().append_many([draft(n) for n in range(3)]), large, one, large, large, one)
    assert [len(json.loads(step.content)["facts"]) for step in seen] == [3, 1, 2, 1, 1]
    assert [getattr(result, "code", "appended") for result in results] == ["appended", "payload_too_large", "appended"]
    assert play(Exchange().append_many([]))[1] == []


def test_one_of_many_that_finds_no_room_knows_when_to_come_back() -> None:
    full = {"status": 429, "problem": {"code": "buffer_full", "detail": "full", "retry_after": 7}}
    _, [result] = play(Exchange().append_many([draft(1)]), said({"results": [full]}))
    assert (result.code, result.may_pass, result.retry_after) == ("buffer_full", True, 7)


def test_an_artifact_is_safe_before_its_fact_is_sent() -> None:
    stored = {"bucket": "files", "key": "a b/ü.pdf", "digest": "sha256:0", "size": 3, "media_type": "application/pdf"}
    steps = Exchange().append_with_artifact(
        draft(1, object_json={"pages": 2}), "files", "a b/ü.pdf", b"pdf", media_type="application/pdf"
    )
    seen, result = play(steps, said(stored, 201), said(APPENDED, 201))
    assert result.offset == 4
    assert [(step.method, step.path) for step in seen] == [
        ("PUT", "/objects/files/a%20b/%C3%BC.pdf"),
        ("POST", "/facts"),
    ]
    assert seen[0].headers["Content-Digest"] == f"sha-256=:{b64encode(sha256(b'pdf').digest()).decode()}:"
    assert json.loads(seen[1].content)["fact"]["object_json"] == {"pages": 2, **stored}


def test_no_fact_is_sent_if_its_artifact_is_not_safe() -> None:
    steps = Exchange().append_with_artifact(draft(1), "files", "a", b"pdf")
    seen, error = play(steps, problem(409, "object_conflict"))
    assert [step.method for step in seen] == ["PUT"]
    assert error.code == "object_conflict"


def test_a_file_is_sent_from_where_it_stood_at_every_try() -> None:
    file = io.BytesIO(b"head" + b"body")
    file.seek(4)

    def read_and_fail() -> Exception:
        assert file.read() == b"body"
        return silent

    stored = {"bucket": "b", "key": "k", "digest": "d", "size": 4, "media_type": "m"}
    seen, result = play(Exchange().put_object("b", "k", file), read_and_fail, read_and_fail, said(stored))
    assert result == Stored("b", "k", "d", 4, "m")
    assert {step.headers["Content-Length"] for step in seen if isinstance(step, Ask)} == {"4"}


def test_a_producer_that_does_not_remember_looks_it_up() -> None:
    answer = said({"offset": 3, "message_id": "a/b", "envelope": {"x": 1}, "fact": {"y": 2}})
    seen, found = play(Exchange().look_up("a/b c", "Plant A", "Enterprise"), answer)
    assert found == Fetched(3, {"x": 1}, {"y": 2})
    assert (seen[0].path, dict(seen[0].params)) == (
        "/facts/a%2Fb%20c",
        {"from_zone": "Plant A", "to_zone": "Enterprise"},
    )


def test_the_consumer_is_the_only_one_of_the_token_unless_it_is_named() -> None:
    exchange = Exchange()
    seen, result = play(exchange.fetch(5, 2.5), said({"consumers": ["erp"]}), page(1, 2, cursor=0))
    assert result == Page([Fetched(1, {}, {}), Fetched(2, {}, {})], 0)
    assert [step.path for step in seen] == ["/client", "/consumers/erp/facts"]
    assert (dict(seen[1].params), seen[1].timeout) == ({"limit": "5", "wait": "2.5"}, 32.5)
    seen, cursor = play(exchange.confirm(2), said({"cursor_advanced_to": 2}))
    assert ([step.path for step in seen], cursor) == (["/consumers/erp/confirm"], 2)
    seen, _ = play(exchange.fetch(consumer="mes"), page())
    assert seen[0].path == "/consumers/mes/facts"


def test_the_consumers_of_a_token_are_told() -> None:
    assert play(Exchange().consumers(), silent, said({"consumers": ["a", "b"]}))[1] == ["a", "b"]


@pytest.mark.parametrize("consumers", [[], ["a", "b"]])
def test_without_the_only_one_it_asks_for_a_name(consumers: list[str]) -> None:
    _, error = play(Exchange().fetch(), said({"consumers": consumers}))
    assert isinstance(error, ProvisioningError)


def test_a_reader_tells_how_far_it_is() -> None:
    told = {"name": "erp", "from_zone": "a", "to_zone": "b", "cursor": 1, "newest": 9}
    _, reader = play(Exchange("erp").reader(), said(told))
    assert reader == Reader("erp", "a", "b", 1, 9)


def test_facts_are_handed_over_in_order_and_confirmed_together() -> None:
    seen, handled = play(
        Exchange("erp").consume(print, until_empty=True),
        page(0, 1),
        None,
        None,
        said({"cursor_advanced_to": 1}),
        page(),
    )
    assert handled == 2
    assert names(seen) == ["Ask", "Hand", "Hand", "Ask", "Ask"]
    assert [step.fact.offset for step in seen if isinstance(step, Hand)] == [0, 1]
    assert json.loads(seen[3].content) == {"offset": 1}


def test_what_was_handled_before_a_handler_failed_is_confirmed() -> None:
    steps = Exchange("erp").consume(print)
    with pytest.raises(ZeroDivisionError):
        play(steps, page(5, 6, cursor=4), None, ZeroDivisionError(), said({"cursor_advanced_to": 5}))


def test_a_handler_that_fails_at_once_confirms_nothing() -> None:
    with pytest.raises(ZeroDivisionError):
        play(Exchange("erp").consume(print), page(5), ZeroDivisionError())


def test_a_handlers_failure_is_told_even_if_nothing_can_be_confirmed() -> None:
    with pytest.raises(ZeroDivisionError):
        play(Exchange("erp").consume(print), page(5, 6), None, ZeroDivisionError(), *[silent] * 4)


def test_a_boundary_that_is_away_is_asked_until_it_answers() -> None:
    seen, handled = play(Exchange("erp").consume(print, until_empty=True), *[silent] * 8, page())
    assert handled == 0
    assert [step.seconds for step in seen if isinstance(step, Pause)][3::4] == [0.2, 0.4]


def test_a_refusal_ends_the_reading() -> None:
    _, error = play(Exchange("erp").consume(print), problem(410, "history_truncated"))
    assert error.code == "history_truncated"


def test_a_stop_ends_it_after_the_fact_at_hand() -> None:
    exchange = Exchange("erp")

    def stop() -> None:
        exchange.is_stopping = True

    seen, handled = play(exchange.consume(print), page(0, 1), stop, said({"cursor_advanced_to": 0}))
    assert handled == 1
    assert json.loads(seen[-1].content) == {"offset": 0}


def test_a_stop_ends_the_waiting_for_a_boundary_that_is_away() -> None:
    exchange = Exchange("erp")

    def stop() -> Exception:
        exchange.is_stopping = True
        return silent

    _, handled = play(exchange.consume(print), silent, silent, silent, stop)
    assert handled == 0


@pytest.mark.parametrize("failures", range(4))
def test_after_a_stop_nothing_is_asked_again(failures: int) -> None:
    exchange = Exchange("erp")

    def stop() -> Exception:
        exchange.is_stopping = True
        return silent

    seen, handled = play(exchange.consume(print), *[silent] * failures, stop)
    assert (sum(isinstance(step, Ask) for step in seen), handled) == (failures + 1, 0)


@pytest.mark.parametrize("failures", range(1, 5))
def test_a_stop_during_a_pause_ends_it(failures: int) -> None:
    exchange = Exchange("erp")
    steps = exchange.consume(print)
    step = next(steps)
    for _ in range(failures):
        if isinstance(step, Pause):
            next(steps)
        step = steps.throw(silent)
    assert isinstance(step, Pause)
    exchange.is_stopping = True
    seen, handled = play(steps)
    assert ([step for step in seen if isinstance(step, Ask)], handled) == ([], 0)


def test_what_was_handled_before_a_stop_is_confirmed_by_one_try() -> None:
    exchange = Exchange("erp")

    def stop() -> None:
        exchange.is_stopping = True

    seen, handled = play(exchange.consume(print), page(0, 1), stop, silent)
    assert ([step for step in names(seen) if "Pause" not in step], handled) == (["Ask", "Hand", "Ask"], 1)


def test_a_handlers_failure_after_a_stop_is_told_after_one_try_to_confirm() -> None:
    exchange = Exchange("erp")

    def stop() -> Exception:
        exchange.is_stopping = True
        return ZeroDivisionError()

    with pytest.raises(ZeroDivisionError):
        play(exchange.consume(print), page(5, 6), None, stop, silent)


def test_a_stop_before_the_consumer_is_known_ends_it_after_one_try() -> None:
    exchange = Exchange()

    def stop() -> Exception:
        exchange.is_stopping = True
        return silent

    _, error = play(exchange.consume(print), stop)
    assert isinstance(error, UnreachableError)


def test_a_stop_of_the_reading_leaves_other_requests_their_tries() -> None:
    exchange = Exchange("erp")
    exchange.is_stopping = True
    assert play(exchange.append(draft(1)), silent, silent, silent, said(APPENDED))[1].offset == 4
    assert play(exchange.confirm(3), silent, said({"cursor_advanced_to": 3}))[1] == 3


def test_an_empty_page_is_followed_by_a_breath_and_the_next_while_it_runs() -> None:
    seen, handled = play(Exchange("erp").consume(print), page(), problem(404, "unknown_consumer"))
    assert (names(seen), handled.code) == (["Ask", "Pause 0.2", "Ask"], "unknown_consumer")
