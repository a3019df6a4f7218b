"""The executor protocol: what is written can be read, and whatever else comes is told apart."""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as some

from engines.executors.lines import LINE_LIMIT, Lines, TooLong
from engines.executors.protocol import (
    UNKNOWN_JOB,
    ExecutionContext,
    ExecutionOutcome,
    ExecutionRequest,
    Noise,
    ProtocolError,
    Status,
    Target,
    Unusable,
    decode_request,
    encode_outcome,
    encode_request,
    job_in,
    read_outcome,
    target_of,
)

pytestmark = pytest.mark.once

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

texts = some.text(max_size=20)
ids = some.text(min_size=1, max_size=20)
numbers = some.integers() | some.floats(allow_nan=False, allow_infinity=False)
values = some.recursive(
    some.none() | some.booleans() | numbers | texts,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)
times = some.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 (hypothesis adds the zone)
    max_value=datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=some.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=9))]),
)
contexts = some.builds(
    ExecutionContext,
    job_id=ids,
    attempt=some.integers(1, 1000),
    enqueue_time=some.none() | times,
    queue_name=texts,
    deadline=some.none() | times,
    trace_context=some.dictionaries(texts, texts, max_size=3),
    worker_id=some.none() | texts,
)
requests = some.builds(
    ExecutionRequest,
    job_id=ids,
    function_name=ids,
    args=some.lists(values, max_size=4),
    kwargs=some.dictionaries(texts, values, max_size=4),
    context=contexts,
)
outcomes = some.builds(
    ExecutionOutcome,
    job_id=ids,
    status=some.sampled_from(Status),
    result=values,
    error_message=some.none() | texts,
    error_type=some.none() | texts,
    retry_after_seconds=some.none() | numbers,
)
# Things that are nearly lines of the protocol: any object, with the right names in it now and then.
names = some.sampled_from(["job_id", "status", "result", "error_message", "error_type", "retry_after_seconds", "args"])
words = some.sampled_from(["t0", "t1", "", "success", "retry", "unknown", "1"])
objects = some.dictionaries(names | texts, values | words, max_size=8)
lines = (
    some.binary(max_size=200)
    | objects.map(lambda one: json.dumps(one).encode())
    | some.tuples(objects, some.integers(0, 200)).map(lambda pair: json.dumps(pair[0]).encode()[: pair[1]])
    | outcomes.map(encode_outcome)
    | some.sampled_from(
        [
            b"[" * 100_000,
            b'{"job_id":"t0","status":"success","result":' + b"[" * 100_000,
            b'{"job_id":"t0","status":"success","result":NaN}',
            b'{"job_id":"t0","status":"success","result":1e999}',
            b'{"job_id":"t0","status":"success","result":' + b"9" * 5000 + b"}",
            b'{"job_id":"t0","status":"success","result":"\xff"}',
            b'{"job_id":"t0","status":[[1]],"result":1}',
            b'{"job_id":"\\ud800","status":"success"}',
        ]
    )
)


def answer(**changes: Any) -> bytes:
    return json.dumps({"job_id": "t0", "status": "success", **changes}).encode()


def rounded(time: datetime | None) -> datetime | None:
    """As a line tells it: in UTC, in milliseconds."""
    return time and time.astimezone(UTC).replace(microsecond=time.microsecond // 1000 * 1000)


@given(requests)
def test_a_request_comes_out_as_it_went_in(request: ExecutionRequest) -> None:
    line = encode_request(request)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    found = decode_request(line)
    assert (found.job_id, found.function_name) == (request.job_id, request.function_name)
    assert (found.args, found.kwargs) == (request.args, request.kwargs)
    given, told = request.context, found.context
    assert (told.job_id, told.attempt, told.queue_name) == (given.job_id, given.attempt, given.queue_name)
    assert (told.trace_context, told.worker_id) == (given.trace_context, given.worker_id)
    assert (told.enqueue_time, told.deadline) == (rounded(given.enqueue_time), rounded(given.deadline))


@given(requests)
def test_a_request_has_every_field_of_the_document_and_times_with_z(request: ExecutionRequest) -> None:
    told = json.loads(encode_request(request))
    assert set(told) == {"protocol_version", "job_id", "function_name", "args", "kwargs", "context"}
    assert told["protocol_version"] == "1"
    context = told["context"]
    always = {"job_id", "attempt", "enqueue_time", "queue_name", "trace_context", "worker_id"}
    assert set(context) - {"deadline"} == always
    assert ("deadline" in context) == (request.context.deadline is not None)
    written = [context[name] for name in ("enqueue_time", "deadline") if context.get(name)]
    assert all(RFC_3339.fullmatch(one) for one in written)


@given(outcomes)
def test_an_outcome_comes_out_as_it_went_in_with_all_six_fields(outcome: ExecutionOutcome) -> None:
    line = encode_outcome(outcome)
    assert set(json.loads(line)) == {
        *("job_id", "status", "result", "error_message", "error_type", "retry_after_seconds")
    }
    assert line.count(b"\n") == 1
    assert read_outcome(line, outcome.job_id) == outcome


@settings(max_examples=150)
@given(lines, some.sampled_from(["t0", "t1", "", "unknown", None]))
@example(b'{"job_id":"","status":null}', "")
def test_whatever_comes_is_told_apart_and_never_anothers_answer(line: bytes, awaited: str | None) -> None:
    found = read_outcome(line, awaited)
    assert isinstance(found, ExecutionOutcome | Noise | Unusable)
    if isinstance(found, ExecutionOutcome):
        told = json.loads(line)
        assert (told["job_id"], told["status"]) == (awaited, found.status)
    if isinstance(found, Unusable):
        assert awaited in ("", job_in(line)), "no transaction has an empty id"


@settings(max_examples=150)
@given(lines)
def test_a_request_that_cannot_be_read_is_refused_and_nothing_else(line: bytes) -> None:
    try:
        request = decode_request(line)
    except ProtocolError as error:
        encode_outcome(ExecutionOutcome(job_id=error.job_id, status=Status.ERROR, error_message=str(error)))
    else:
        assert request.job_id


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"ready", b"[1]", b'"t0"', b"7", b"null", b"{", b"{}"])
def test_what_is_printed_is_noise(line: bytes) -> None:
    assert isinstance(read_outcome(line, "t0"), Noise)


@pytest.mark.parametrize("told", [{"job_id": "t0", "progress": 0.5}, {"status": "success"}, {"msg": "job t0"}])
def test_a_log_line_that_is_an_object_is_noise(told: dict[str, Any]) -> None:
    assert isinstance(read_outcome(json.dumps(told).encode(), "t0"), Noise)


@pytest.mark.parametrize("job_id", ["t1", "", None, 0, ["t0"], {"job_id": "t0"}])
def test_an_answer_to_another_job_is_noise(job_id: Any) -> None:
    assert isinstance(read_outcome(answer(job_id=job_id, result={"job_id": "t0"}), "t0"), Noise)
    assert isinstance(read_outcome(answer(job_id=job_id), None), Noise)


@pytest.mark.parametrize("status", ["SUCCESS", "done", "", None, 1, ["success"], {"a": 1}, "x" * 100_000])
def test_an_answer_with_an_unknown_status_is_unusable(status: Any) -> None:
    found = read_outcome(answer(status=status), "t0")
    assert isinstance(found, Unusable)
    assert "status" in found.reason
    assert len(found.reason) < 200


BEGUN = b'{"job_id": "t0", "status": "success", "result": '


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        (b"NaN}", "NaN is not a JSON number"),
        (b"-Infinity}", "-Infinity is not a JSON number"),
        (b"1e400}", "the number 1e400 is too large"),
        (b'{"a": [' + b"9" * 5000 + b"]}}", "a number has 5,000 digits"),
        (b'"\xc3("}', "it is not UTF-8"),
        (b"[" * 99_999 + b"]" * 99_999 + b"}", "it is nested too deeply"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"50 %", b"\xff{x} "])
def test_a_whole_answer_that_cannot_be_read_is_unusable_and_to_others_noise(
    before: bytes, rest: bytes, reason: str
) -> None:
    assert read_outcome(before + BEGUN + rest, "t0") == Unusable(f"its answer cannot be read: {reason}")
    assert isinstance(read_outcome(before + BEGUN + rest, "t1"), Noise)
    assert isinstance(read_outcome(before + BEGUN + rest, None), Noise)


@pytest.mark.parametrize("rest", [b"tru}", b"}", b"undefined}", b'"say "hi""}', b"{1: 2}}", b"1,}\r"])
@pytest.mark.parametrize("before", [b"", b" ", b"\xef\xbb\xbf"])
def test_an_answer_of_one_line_that_is_not_json_is_unusable(before: bytes, rest: bytes) -> None:
    found = read_outcome(before + BEGUN + rest, "t0")
    assert isinstance(found, Unusable)
    assert found.reason.startswith("its answer is not JSON: ")
    assert isinstance(read_outcome(before + BEGUN + rest, "t1"), Noise)


@pytest.mark.parametrize("rest", [b"", b"tru", b"[1, 2", b'"', b'{"a": '])
def test_half_an_answer_is_noise_that_was_meant_as_the_answer(rest: bytes) -> None:
    found = read_outcome(BEGUN + rest, "t0")
    assert isinstance(found, Noise)
    assert found.is_meant
    assert found.reason.startswith("not JSON: ")
    assert read_outcome(BEGUN + rest, "t1") == Noise(found.reason)


@pytest.mark.parametrize(
    "before",
    [b"50 %", b"{50 %} ", b'{"progress": 0.5}', b'say "hi', b"\xff\xfe", b'{"job_id": "t0", "sta', b"{" * 30, b"\r"],
)
def test_what_was_printed_without_an_end_of_line_before_an_answer_is_dropped(before: bytes) -> None:
    found = read_outcome(before + BEGUN + b'{"a": 1}}', "t0")
    assert found == ExecutionOutcome(job_id="t0", status=Status.SUCCESS, result={"a": 1})
    assert isinstance(read_outcome(before + BEGUN + b"1}", "t1"), Noise)


@pytest.mark.parametrize(
    "line",
    [
        b'sent {"job_id": "t0", "status": "success"} in 5 ms',
        b'INFO {"job_id": "t0", "status": "running"}',
        b'INFO {"job_id": "t0", "progress": NaN}',
        b'{"job_id": "t0", "progress": NaN}',
        b'{"job_id": "t0", "status": "running", "since": yesterday}',
        b"{'job_id': 't0', 'status': 'success'}",
        b'INFO {"answer": {"job_id": "t0", "status": "success"}}',
        b"job_id: t0, status: success",
        b'"job_id": "t0", "status": "success"',
        b"{" * 200_000 + b'"job_id": "t0", "status"',
    ],
    ids=lambda line: line[:40],
)
def test_a_log_line_that_tells_of_the_job_is_noise(line: bytes) -> None:
    assert isinstance(read_outcome(line, "t0"), Noise)


def test_unknown_fields_are_ignored_and_missing_ones_default() -> None:
    assert read_outcome(answer(version=2), "t0") == ExecutionOutcome(job_id="t0", status=Status.SUCCESS)


def test_an_answer_is_not_lost_for_the_form_of_its_excuse() -> None:
    line = answer(status="error", error_message={"code": 7}, error_type=3, retry_after_seconds="soon")
    found = read_outcome(line, "t0")
    assert isinstance(found, ExecutionOutcome)
    assert (found.error_message, found.error_type, found.retry_after_seconds) == ('{"code": 7}', "3", None)


def test_a_mark_at_the_beginning_and_carriage_returns_do_no_harm() -> None:
    assert isinstance(read_outcome(b"\xef\xbb\xbf" + answer() + b"\r", "t0"), ExecutionOutcome)


@pytest.mark.parametrize(
    ("line", "job_id", "error_type"),
    [
        (b"nonsense", UNKNOWN_JOB, "bad_request"),
        (b"[]", UNKNOWN_JOB, "bad_request"),
        (b"{}", UNKNOWN_JOB, "bad_request"),
        (b'{"job_id": 5}', UNKNOWN_JOB, "bad_request"),
        (b'{"job_id": ""}', UNKNOWN_JOB, "bad_request"),
        (b'{"function_name": "f", "context": {"job_id": "c1"}}', "c1", "bad_request"),
        (b'{"job_id": 5, "context": {"job_id": "c1"}}', "c1", "bad_request"),
        (b'{"job_id": null, "context": {"job_id": 5}}', UNKNOWN_JOB, "bad_request"),
        (b'{"context": "c1"}', UNKNOWN_JOB, "bad_request"),
        (b'{"job_id": "t0"}', "t0", "bad_request"),
        (b'{"job_id": "t0", "protocol_version": "2"}', "t0", "unsupported_protocol"),
        (b'{"job_id": "t0", "protocol_version": ""}', "t0", "unsupported_protocol"),
        (b'{"job_id": "t0", "protocol_version": 1}', "t0", "unsupported_protocol"),
        (b'{"job_id": "t0", "protocol_version": ' + b"[" * 200 + b"]" * 200 + b"}", "t0", "unsupported_protocol"),
        (b'{"job_id": "t0", "protocol_version": "1"}', "t0", "bad_request"),
        (b'{"job_id": "t0", "protocol_version": "1", "function_name": ""}', "t0", "bad_request"),
        (b'{"job_id": "t0", "protocol_version": "1", "function_name": "f", "args": {}}', "t0", "bad_request"),
        (b'{"job_id": "t0", "protocol_version": "1", "function_name": "f", "kwargs": []}', "t0", "bad_request"),
        (b'{"job_id": "t0", "protocol_version": "1", "function_name": "f", "context": 1}', "t0", "bad_request"),
        (b'{"job_id": "t0", "protocol_version": "1", "function_name": "f", "args": [NaN]}', "t0", "bad_request"),
        (b'{"protocol_version": "1", "job_id": "t\\u00e9", "function_name": ', "té", "bad_request"),
        (b'{"job_id": "t0", "args": ["\xff"]}', "t0", "bad_request"),
    ],
)
def test_a_malformed_request_is_told_with_the_jobs_id_where_that_can_be_read(
    line: bytes, job_id: str, error_type: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_request(line)
    assert (caught.value.job_id, caught.value.error_type) == (job_id, error_type)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("attempt", "1"), ("attempt", True), ("queue_name", 1), ("deadline", 5), ("deadline", "soon")],
        *[("deadline", "2025-01-01T12:00:00"), ("enqueue_time", "2025-13-01T12:00:00Z"), ("trace_context", [])],
    ],
)
def test_a_context_of_the_wrong_form_is_refused_by_name(name: str, value: Any) -> None:
    line = json.dumps(
        {"protocol_version": "1", "job_id": "t0", "function_name": "f", "context": {name: value}}
    ).encode()
    with pytest.raises(ProtocolError, match=f"context.{name}") as caught:
        decode_request(line)
    assert caught.value.job_id == "t0"


@pytest.mark.parametrize(
    "written",
    ["2025-01-01T12:00:00Z", "2025-01-01t12:00:00z", "2025-01-01T13:00:00+01:00", "2025-01-01T12:00:00.000000000Z"],
)
def test_every_form_of_rfc_3339_is_read(written: str) -> None:
    context = {"deadline": written, "trace_context": {"traceparent": 5, "tracestate": "a=b"}}
    line = json.dumps({"protocol_version": "1", "job_id": "t0", "function_name": "f", "context": context}).encode()
    request = decode_request(line)
    assert request.context.deadline == datetime(2025, 1, 1, 12, tzinfo=UTC)
    assert request.context.trace_context == {"tracestate": "a=b"}, "a broken trace is not worth a job"


def test_missing_fields_take_their_defaults_and_a_missing_version_is_the_first() -> None:
    request = decode_request(b'{"job_id": "t0", "function_name": "f"}')
    assert (request.args, request.kwargs) == ([], {})
    assert request.context == ExecutionContext(job_id="t0")


class Rude(dict[str, Any]):
    def items(self) -> Any:
        raise ZeroDivisionError


def deep() -> list[Any]:
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    return inner


UNWRITABLE = [float("nan"), float("inf"), {1, 2}, object(), {("a", 1): 2}, deep(), 10**5000, Rude(a=1)]


@pytest.mark.parametrize("value", UNWRITABLE, ids=lambda value: type(value).__name__)
def test_what_no_line_can_carry_is_refused(value: Any) -> None:
    with pytest.raises(ProtocolError, match="not serialisable"):
        encode_outcome(ExecutionOutcome(job_id="t0", status=Status.SUCCESS, result=value))


pieces = some.binary(max_size=12) | some.just(b"\n") | some.just(b"x" * 9 + b"\n")


@settings(max_examples=200)
@given(some.lists(pieces, max_size=12), some.lists(some.integers(0, 60), max_size=10), some.integers(1, 15))
def test_the_same_lines_come_out_however_the_bytes_are_cut(parts: list[bytes], cuts: list[int], limit: int) -> None:
    stream = b"".join(parts)
    marks = [0, *sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]
    chunks = [stream[begin:end] for begin, end in pairwise(marks)]
    cut, whole = Lines(limit), Lines(limit)
    found = [line for chunk in chunks for line in cut.feed(chunk)]
    assert found == list(whole.feed(stream))
    assert (cut.is_mid_line, cut.begun) == (whole.is_mid_line, whole.begun)
    *ended, rest = stream.split(b"\n")
    long = [TooLong(line[:limit]) if len(line) > limit else line for line in ended]
    assert found == long + ([TooLong(rest[:limit])] if len(rest) > limit else [])
    assert cut.is_mid_line == bool(rest)


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    assert list(Lines(4).feed(b"abcd\n")) == [b"abcd"]
    assert list(Lines(4).feed(b"abcde\nab\n")) == [TooLong(b"abcd"), b"ab"]
    assert LINE_LIMIT == 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("function", "target"),
    [
        ("a#b", Target("a", "b")),
        ("bad#b#c", Target("bad", "b#c")),
        ("#ok", Target("usual", "ok")),
        ("bare", Target("usual", "bare")),
        ("a##", Target("a", "#")),
    ],
)
def test_a_function_names_an_executor_and_a_handler(function: str, target: Target) -> None:
    assert target_of(function, "usual") == target


@pytest.mark.parametrize("function", ["", "#", "a#", None, 5, ["a#b"], {}])
def test_a_function_without_a_handler_is_refused(function: Any) -> None:
    with pytest.raises(ProtocolError):
        target_of(function, "usual")
