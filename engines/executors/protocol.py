"""The executor protocol, version 1: requests and outcomes, each one line of JSON. Bytes in, values out."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

VERSION = "1"
UNKNOWN_JOB = "unknown"
HANDLER_NOT_FOUND = "handler_not_found"
UNSUPPORTED_PROTOCOL = "unsupported_protocol"
# Beginnings of objects that are tried in a line which is not JSON as a whole.
MOST_OBJECTS = 32


class Status(StrEnum):
    SUCCESS = "success"
    RETRY = "retry"
    TIMEOUT = "timeout"
    ERROR = "error"


class ProtocolError(ValueError):
    """A line that breaks the protocol, or a value that no line can carry."""

    def __init__(self, message: str, *, job_id: str = UNKNOWN_JOB, error_type: str = "bad_request") -> None:
        super().__init__(message)
        self.job_id, self.error_type = job_id, error_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """The context of a job, for its handler."""

    job_id: str
    attempt: int = 1
    enqueue_time: datetime | None = None
    queue_name: str = ""
    deadline: datetime | None = None
    trace_context: Mapping[str, str] = field(default_factory=dict)
    worker_id: str | None = None

    @property
    def remaining(self) -> float | None:
        """Seconds until the orchestrator gives up, None if nothing limits the job."""
        return None if self.deadline is None else max(0.0, (self.deadline - datetime.now(UTC)).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    job_id: str
    function_name: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    context: ExecutionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOutcome:
    job_id: str
    status: Status
    result: Any = None
    error_message: str | None = None
    error_type: str | None = None
    retry_after_seconds: float | None = None


class Noise(NamedTuple):
    """A line that is nobody's answer, and why."""

    reason: str
    is_meant: bool = False  # it may have been meant as the awaited answer, and is broken


class Unusable(NamedTuple):
    """A line that was meant as the awaited answer and cannot be taken as one, and why."""

    reason: str


class Target(NamedTuple):
    executor: str
    handler: str


def target_of(function: Any, default: str) -> Target:
    """`executor#handler`, split at the first `#`; without an executor, the default one."""
    if not isinstance(function, str):
        msg = "the payload names no function: it must be an object with 'function', 'args' and 'kwargs'"
        raise ProtocolError(msg)
    executor, separator, handler = function.partition("#")
    if not separator:
        executor, handler = "", function
    if not handler:
        msg = f"the function {function!r} names no handler"
        raise ProtocolError(msg)
    return Target(executor or default, handler)


def margin(seconds: float) -> float:
    """The time before its limit at which an executor stops by itself, shortly before it would be killed."""
    return min(seconds * 0.05, 0.05)


def encode_request(request: ExecutionRequest) -> bytes:
    context = request.context
    told = {
        "job_id": context.job_id,
        "attempt": context.attempt,
        "enqueue_time": _time(context.enqueue_time),
        "queue_name": context.queue_name,
        "trace_context": dict(context.trace_context),
        "worker_id": context.worker_id,
    }
    if context.deadline is not None:
        told["deadline"] = _time(context.deadline)
    return _line(
        {
            "protocol_version": VERSION,
            "job_id": request.job_id,
            "function_name": request.function_name,
            "args": request.args,
            "kwargs": request.kwargs,
            "context": told,
        }
    )


def decode_request(line: bytes) -> ExecutionRequest:
    """The job in a line; what is wrong with it is told with the job's id, where that can be read."""
    try:
        found = _parsed(line)
    except ValueError as error:
        msg = f"the request is not JSON: {error}"
        raise ProtocolError(msg, job_id=job_in(line)) from None
    if not isinstance(found, dict):
        msg = f"the request is {_kind(found)}, not an object"
        raise ProtocolError(msg)
    job_id = found.get("job_id")
    if not isinstance(job_id, str) or not job_id:
        msg = "the request has no job_id" if job_id in (None, "") else f"job_id is {_kind(job_id)}"
        context = found.get("context")  # which repeats it
        inner = context.get("job_id") if isinstance(context, dict) else None
        raise ProtocolError(msg, job_id=inner if isinstance(inner, str) and inner else UNKNOWN_JOB)
    version = found.get("protocol_version")
    if version is not None and version != VERSION:
        msg = f'protocol version {_shown(version)[:40]} is not supported; this executor speaks "{VERSION}"'
        raise ProtocolError(msg, job_id=job_id, error_type=UNSUPPORTED_PROTOCOL)
    fields = _Fields(found, job_id)
    name = fields.take("function_name", str)
    if not name:
        msg = "the request names no function"
        raise ProtocolError(msg, job_id=job_id)
    args, kwargs = fields.take("args", list, default=[]), fields.take("kwargs", dict, default={})
    within = _Fields(fields.take("context", dict, default={}), job_id, within="context.")
    return ExecutionRequest(
        job_id=job_id, function_name=name, args=args, kwargs=kwargs, context=_context(within, job_id)
    )


def encode_outcome(outcome: ExecutionOutcome) -> bytes:
    """All six fields, always."""
    return _line({name: getattr(outcome, name) for name in outcome.__slots__})


def read_outcome(line: bytes, awaited: str | None) -> ExecutionOutcome | Noise | Unusable:
    """Parse an executor's answer to the awaited job; other output is not an answer.

    The answer is an object with the awaited `job_id` and a status. What stands before it in its line was printed
    without an end of line, and is dropped. An answer that is whole and cannot be taken ends the attempt: no better one
    would come. Everything else is noise: blank lines, log lines that name the job but no status, half an answer.
    """
    why = "not an object" if line.strip() else "a blank line"
    is_object = line.removeprefix(_MARK).lstrip()[:1] == b"{"
    if is_object:
        try:
            return _judged(_parsed(line), awaited)
        except ValueError as error:
            why = f"not JSON: {error}"
    if awaited is None or awaited not in _jobs_in(line):
        return Noise(why)
    if found := _found_in(line, awaited):
        return found
    if is_object and line.rstrip().endswith(b"}") and job_in(line) == awaited and _STATUS.search(line):
        return Unusable(f"its answer is {why}")
    return Noise(why, is_meant=b'"status"' in line)


def _judged(found: dict[str, Any], awaited: str | None) -> ExecutionOutcome | Noise | Unusable:
    if "job_id" not in found or "status" not in found:
        return Noise("an object without a job_id and a status")
    if awaited is None or found["job_id"] != awaited:
        return Noise("an answer to a job that is not awaited")
    status, after = found["status"], found.get("retry_after_seconds")
    if not isinstance(status, str | None):
        return Unusable(f"its answer breaks the protocol: status is {_kind(status)}")
    if status not in set(Status):
        shown = (status or "")[:40]
        return Unusable(f"its answer breaks the protocol: the status {shown!r} is none of {', '.join(Status)}")
    # A text that is none is shown as JSON: an answer is not lost for the form of its excuse.
    message, kind = (
        text if text is None or isinstance(text, str) else _shown(text)
        for text in (found.get("error_message"), found.get("error_type"))
    )
    return ExecutionOutcome(
        job_id=awaited,
        status=Status(status),
        result=found.get("result"),
        error_message=message,
        error_type=kind,
        retry_after_seconds=after if isinstance(after, int | float) and not isinstance(after, bool) else None,
    )


def _found_in(line: bytes, awaited: str) -> ExecutionOutcome | Unusable | None:
    """The answer inside a line that is not JSON as a whole: with text around it, or with a value that is not read here.

    With text before it only an object at the end of the line counts: a log line that quotes an answer goes on after it.
    """
    text = line.removeprefix(_MARK).decode("utf-8", "surrogateescape").strip()
    end = 0
    for _ in range(MOST_OBJECTS):
        if (start := text.find("{", end)) < 0:
            break
        reader = _Reader()
        try:
            found, end = reader.decoder.raw_decode(text, start)
        except RecursionError:
            return Unusable("its answer cannot be read: it is nested too deeply") if b'"status"' in line else None
        except ValueError:
            end = start + 1
            continue
        status = found.get("status")
        is_answer = end == len(text) and isinstance(status, str) and status in set(Status)
        if found.get("job_id") != awaited or (start > 0 and not is_answer):
            continue
        if fault := reader.fault or (_NOT_UTF8.search(text, start, end) and "it is not UTF-8"):
            return Unusable(f"its answer cannot be read: {fault}") if "status" in found else None
        answer = _judged(found, awaited)
        return None if isinstance(answer, Noise) else answer
    return None


def job_in(line: bytes) -> str:
    """The first job id that stands in a line that cannot be read as a whole, or is not here as a whole."""
    return next(_jobs_in(line), UNKNOWN_JOB)


def _jobs_in(line: bytes) -> Iterator[str]:
    for found in _JOB.finditer(line):
        with suppress(ValueError):
            yield str(json.loads(found[1]))


class _Fields:
    """An object's fields, taken one by one with the type that each must have."""

    def __init__(self, found: dict[str, Any], job_id: str, within: str = "") -> None:
        self._found, self._job_id, self._within = found, job_id, within

    def take(self, name: str, kind: Any, *, default: Any = None) -> Any:
        value = self._found.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):  # to Python, True is a number
            msg = f"{self._within}{name} is {_kind(value)}"
            raise ProtocolError(msg, job_id=self._job_id)
        return value

    def time(self, name: str) -> datetime | None:
        if (text := self.take(name, str)) is None:
            return None
        with suppress(ValueError):
            found = datetime.fromisoformat(text.upper())
            if found.tzinfo is not None:
                return found
        msg = f"{self._within}{name} is not a time of RFC 3339: {text!r}"
        raise ProtocolError(msg, job_id=self._job_id)


def _context(fields: _Fields, job_id: str) -> ExecutionContext:
    trace = fields.take("trace_context", dict, default={})
    return ExecutionContext(
        job_id=fields.take("job_id", str, default=job_id),
        attempt=fields.take("attempt", int, default=1),
        enqueue_time=fields.time("enqueue_time"),
        queue_name=fields.take("queue_name", str, default=""),
        deadline=fields.time("deadline"),
        # A broken trace is not worth a job.
        trace_context={name: value for name, value in trace.items() if isinstance(value, str)},
        worker_id=fields.take("worker_id", str),
    )


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return _kind(value)


def _line(value: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(value).encode() + b"\n"
    except Exception as error:  # noqa: BLE001 (a handler's own kind of dictionary raises what it likes)
        msg = f"not serialisable as JSON: {str(error) or type(error).__name__}"
        raise ProtocolError(msg) from None


def _parsed(line: bytes) -> Any:
    try:
        return _DECODER.decode(line.removeprefix(_MARK).decode("utf-8"))
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None
    except UnicodeDecodeError:
        msg = "it is not UTF-8"
        raise ValueError(msg) from None


class _Reader:
    """Reads an object that is JSON but for numbers that are not read here, and says which."""

    def __init__(self) -> None:
        self.fault = ""
        self.decoder = json.JSONDecoder(
            parse_constant=partial(self._try, _refuse),
            parse_float=partial(self._try, _finite),
            parse_int=partial(self._try, _whole),
        )

    def _try(self, kind: Callable[[str], Any], word: str) -> Any:
        try:
            return kind(word)
        except ValueError as error:
            self.fault = self.fault or str(error)
            return None


def _refuse(word: str) -> None:
    msg = f"{word} is not a JSON number"
    raise ValueError(msg)


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        msg = f"the number {word[:20]} is too large"
        raise ValueError(msg)
    return number


def _whole(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        msg = f"a number has {len(word):,} digits"
        raise ValueError(msg) from None


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


# Some platforms begin their output with it.
_MARK = b"\xef\xbb\xbf"
# What bytes become that are not UTF-8 ("surrogateescape").
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_STATUS = re.compile(rb'"status"\s*:\s*"(?:%s)"' % "|".join(Status).encode())
_JOB = re.compile(rb'"job_id"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.){1,400}")')


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _kind(value: Any) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return "null" if value is None else kinds.get(type(value), "an object")
