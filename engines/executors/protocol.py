"""The executor protocol, version 1: requests and outcomes, each one line of JSON. Bytes in, values out."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

VERSION = "1"
LINE_LIMIT = 16 * 1024 * 1024
UNKNOWN_JOB = "unknown"
HANDLER_NOT_FOUND = "handler_not_found"
UNSUPPORTED_PROTOCOL = "unsupported_protocol"


class Status(StrEnum):
    """How a job came out, in the executor's words."""

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
    """What a handler may want to know of its job."""

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
    """One job for an executor."""

    job_id: str
    function_name: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    context: ExecutionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOutcome:
    """What became of a job."""

    job_id: str
    status: Status
    result: Any = None
    error_message: str | None = None
    error_type: str | None = None
    retry_after_seconds: float | None = None


class Noise(NamedTuple):
    """A line that is nobody's answer, and why."""

    reason: str


class Unusable(NamedTuple):
    """A line that was meant as the awaited answer and cannot be taken as one, and why."""

    reason: str


class Target(NamedTuple):
    """Which handler of which executor."""

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
        raise ProtocolError(msg, job_id=_job_in(line)) from None
    if not isinstance(found, dict):
        msg = f"the request is {_kind(found)}, not an object"
        raise ProtocolError(msg)
    job_id = found.get("job_id")
    if not isinstance(job_id, str) or not job_id:
        msg = "the request has no job_id"
        raise ProtocolError(msg)
    if found.get("protocol_version") != VERSION:
        msg = f"protocol version {found.get('protocol_version')!r} is not supported; this executor speaks {VERSION!r}"
        raise ProtocolError(msg, job_id=job_id, error_type=UNSUPPORTED_PROTOCOL)
    fields = _Fields(found, job_id)
    name = fields.take("function_name", str)
    if not name:
        msg = "the request names no function"
        raise ProtocolError(msg, job_id=job_id)
    args, kwargs = fields.take("args", list, default=[]), fields.take("kwargs", dict, default={})
    context = _context(_Fields(fields.take("context", dict, default={}), job_id, within="context."))
    return ExecutionRequest(job_id=job_id, function_name=name, args=args, kwargs=kwargs, context=context)


def encode_outcome(outcome: ExecutionOutcome) -> bytes:
    """All six fields, always."""
    return _line(
        {
            "job_id": outcome.job_id,
            "status": outcome.status.value,
            "result": outcome.result,
            "error_message": outcome.error_message,
            "error_type": outcome.error_type,
            "retry_after_seconds": outcome.retry_after_seconds,
        }
    )


def read_outcome(line: bytes, awaited: str) -> ExecutionOutcome | Noise | Unusable:
    """What a line of an executor's output is to somebody who awaits the answer to one job.

    Whatever a handler prints is noise. Only a line that names the awaited job can be its answer, and one that names it
    and cannot be read ends the attempt: no better one would come.
    """
    if not line.strip():
        return Noise("a blank line")
    try:
        found = _parsed(line)
    except ValueError as error:
        is_ours = line.lstrip()[:1] == b"{" and _job_in(line) == awaited
        return Unusable(f"its answer is not JSON: {error}") if is_ours else Noise(f"not JSON: {error}")
    if not isinstance(found, dict):
        return Noise(f"{_kind(found)}, not an object")
    if found.get("job_id") != awaited:
        return Noise("an answer to a job that is not awaited" if "job_id" in found else "an object without a job_id")
    try:
        return _outcome(_Fields(found, awaited))
    except ProtocolError as error:
        return Unusable(f"its answer breaks the protocol: {error}")


class Lines:
    """Cuts a stream of bytes into lines. What has no end yet is kept, up to a limit."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in this chunk; refuses to keep more than the limit."""
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            self._keep(line)
            yield b"".join(self._begun)
            self._begun, self._length = [], 0
        if rest:
            self._keep(rest)

    @property
    def is_mid_line(self) -> bool:
        return bool(self._begun)

    def _keep(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._limit:
            self._begun = []
            msg = f"a line is longer than {self._limit:,} bytes"
            raise ProtocolError(msg)
        self._begun.append(piece)


# To Python, True is a number.
_NUMBERS = (int, int | float)


class _Fields:
    """An object's fields, taken one by one with the type that each must have."""

    def __init__(self, found: dict[str, Any], job_id: str, within: str = "") -> None:
        self._found, self._job_id, self._within = found, job_id, within

    def take(self, name: str, kind: Any, *, default: Any = None) -> Any:
        value = self._found.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind in _NUMBERS):
            msg = f"{self._within}{name} is {_kind(value)}"
            raise ProtocolError(msg, job_id=self._job_id)
        return value

    def time(self, name: str) -> datetime | None:
        text = self.take(name, str)
        try:
            found = None if text is None else datetime.fromisoformat(text)
        except ValueError:
            found = None
        if text is not None and (found is None or found.tzinfo is None):
            msg = f"{self._within}{name} is not a time of RFC 3339: {text!r}"
            raise ProtocolError(msg, job_id=self._job_id)
        return found

    @property
    def job_id(self) -> str:
        return self._job_id


def _context(fields: _Fields) -> ExecutionContext:
    return ExecutionContext(
        job_id=fields.take("job_id", str, default=fields.job_id),
        attempt=fields.take("attempt", int, default=1),
        enqueue_time=fields.time("enqueue_time"),
        queue_name=fields.take("queue_name", str, default=""),
        deadline=fields.time("deadline"),
        trace_context=fields.take("trace_context", dict, default={}),
        worker_id=fields.take("worker_id", str),
    )


def _outcome(fields: _Fields) -> ExecutionOutcome:
    word = fields.take("status", str, default="")
    if word not in set(Status):
        msg = f"the status {word!r} is none of {', '.join(Status)}"
        raise ProtocolError(msg)
    return ExecutionOutcome(
        job_id=fields.job_id,
        status=Status(word),
        result=fields.take("result", object),
        error_message=fields.take("error_message", str),
        error_type=fields.take("error_type", str),
        retry_after_seconds=fields.take("retry_after_seconds", int | float),
    )


def _line(value: dict[str, Any]) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"not serialisable as JSON: {error}"
        raise ProtocolError(msg) from None


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None
    except UnicodeDecodeError:
        msg = "it is not UTF-8"
        raise ValueError(msg) from None


def _refuse(word: str) -> None:
    msg = f"{word} is no JSON number"
    raise ValueError(msg)


# For lines that cannot be read as a whole: the id as it stands in them, if it needs no escapes.
_JOB = re.compile(rb'"job_id"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.){1,400}")')


def _job_in(line: bytes) -> str:
    found = _JOB.search(line)
    try:
        return str(json.loads(found[1])) if found else UNKNOWN_JOB
    except ValueError:
        return UNKNOWN_JOB


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
    return "an object"
