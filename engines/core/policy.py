"""Policies: frozen, complete, valid on arrival, JSON in and out. They say how the engines work, never what tasks do."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, Self, TypeVar

from engines.core import backoff as waits
from engines.core.errors import PolicyError

P = TypeVar("P", bound="Policy")


class Policy:
    """What every policy can do."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            value, rule = getattr(self, one.name), one.metadata
            if not (value is None and rule["optional"]) and not rule["check"](value):
                self.refuse(one.name, f"must be {rule['bound']}, not {value!r}")
        self.check()

    def check(self) -> None:
        """Bounds between fields."""

    @classmethod
    def refuse(cls, name: str, problem: str) -> NoReturn:
        msg = f"{cls.__name__}.{name} {problem}"
        raise PolicyError(msg, (name,))

    def to_dict(self) -> dict[str, Any]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: value.to_dict() if isinstance(value, Policy) else value for name, value in values.items()}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"{cls.__name__} is not JSON: {error}"
            raise PolicyError(msg) from None
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The policy with these fields and the defaults of the others; unknown names are refused."""
        if not isinstance(values, Mapping):
            msg = f"{cls.__name__} must be an object, not {values!r}"
            raise PolicyError(msg)
        known = {one.name: one.metadata.get("kind") for one in fields(cls)}  # type: ignore[arg-type]
        for name in values:
            if name not in known:
                cls.refuse(str(name), f"is unknown; there are: {', '.join(known)}")
        return cls(**{name: cls._read(name, known[name], value) for name, value in values.items()})

    @classmethod
    def _read(cls, name: str, kind: type["Policy"] | None, value: Any) -> Any:
        if kind is None:
            return value
        try:
            return kind.from_dict(value)
        except PolicyError as error:
            # The whole way to the field: steps.process.retry.max_attempts.
            msg = f"{cls.__name__}.{name}{str(error).removeprefix(kind.__name__)}"
            raise PolicyError(msg, (name, *error.path)) from None


def _rule(bound: str, check: Callable[[Any], bool], *, optional: bool = False) -> dict[str, Any]:
    """What a field's value must be, in words for people and as a check."""
    return {"bound": f"{bound} or null" if optional else bound, "check": check, "optional": optional}


def _of(kind: type[Policy]) -> dict[str, Any]:
    return {**_rule(f"a {kind.__name__}", lambda value: isinstance(value, kind)), "kind": kind}


WHOLE = _rule("a whole number of at least 1", lambda value: type(value) is int and value >= 1)
WHOLE_OR_NONE = _rule("a whole number of at least 1", WHOLE["check"], optional=True)
DURATION = _rule("a number of seconds of at least 0", waits.is_duration)
TIME_LIMIT = _rule("a number of seconds above 0", lambda value: waits.is_duration(value) and value > 0, optional=True)
FACTOR = _rule("a number of at least 1", lambda value: waits.is_duration(value) and value >= 1)
FLAG = _rule("true or false", lambda value: type(value) is bool)
OBJECT = _rule("an object", lambda value: isinstance(value, Mapping))
NAME = _rule("a name", lambda value: isinstance(value, str) and value != "", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(Policy):
    """How often, for how long, and after which waits a stage is tried."""

    max_attempts: int = field(default=1, metadata=WHOLE)
    timeout: float | None = field(default=None, metadata=TIME_LIMIT)
    backoff: float = field(default=0.0, metadata=DURATION)
    backoff_multiplier: float = field(default=2.0, metadata=FACTOR)
    backoff_cap: float = field(default=0.0, metadata=DURATION)

    def delay(self, retry: int) -> float:
        """The wait before another attempt; `retry` 0 follows the first failure."""
        return waits.exponential(retry, backoff=self.backoff, multiplier=self.backoff_multiplier, cap=self.backoff_cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyPolicy(Policy):
    """How many transactions run at once."""

    value: int = field(default=1, metadata=WHOLE)
    min: int | None = field(default=None, metadata=WHOLE_OR_NONE)
    max: int | None = field(default=None, metadata=WHOLE_OR_NONE)

    def check(self) -> None:
        if self.min is not None and self.min > self.value:
            self.refuse("min", f"must be at most value ({self.value}), not {self.min}")
        if self.max is not None and self.max < self.value:
            self.refuse("max", f"must be at least value ({self.value}), not {self.max}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy(Policy):
    """How many transactions are taken at a time."""

    size: int = field(default=1, metadata=WHOLE)
    min_size: int | None = field(default=None, metadata=WHOLE_OR_NONE)
    max_size: int | None = field(default=None, metadata=WHOLE_OR_NONE)
    interval: float = field(default=0.0, metadata=DURATION)

    def check(self) -> None:
        if self.min_size is not None and self.min_size > self.size:
            self.refuse("min_size", f"must be at most size ({self.size}), not {self.min_size}")
        if self.max_size is not None and self.max_size < self.size:
            self.refuse("max_size", f"must be at least size ({self.size}), not {self.max_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyQueuePolicy(Policy):
    """How long a streaming consumer waits when there was nothing."""

    backoff: float = field(default=0.1, metadata=DURATION)
    backoff_multiplier: float = field(default=2.0, metadata=FACTOR)
    backoff_cap: float = field(default=5.0, metadata=DURATION)
    interval: float = field(default=0.0, metadata=DURATION)  # reserved

    def delay(self, empty: int) -> float:
        """The wait after so many empty fetches in a row; 0 is the first."""
        return waits.exponential(empty, backoff=self.backoff, multiplier=self.backoff_multiplier, cap=self.backoff_cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy(Policy):
    """How a consumer asks its connector."""

    retry: RetryPolicy = field(default_factory=RetryPolicy, metadata=_of(RetryPolicy))
    extra: Mapping[str, Any] = field(default_factory=dict, metadata=OBJECT)
    connector_name: str | None = field(default=None, metadata=NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPolicy(Policy):
    retry: RetryPolicy = field(default_factory=RetryPolicy, metadata=_of(RetryPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePolicy(Policy):
    retry: RetryPolicy = field(default_factory=RetryPolicy, metadata=_of(RetryPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessPolicy(Policy):
    retry: RetryPolicy = field(default_factory=RetryPolicy, metadata=_of(RetryPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionPolicy(Policy):
    retry: RetryPolicy = field(default_factory=RetryPolicy, metadata=_of(RetryPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSteps(Policy):
    fetch: FetchPolicy = field(default_factory=FetchPolicy, metadata=_of(FetchPolicy))
    process: ProcessPolicy = field(default_factory=ProcessPolicy, metadata=_of(ProcessPolicy))
    success: SuccessPolicy = field(default_factory=SuccessPolicy, metadata=_of(SuccessPolicy))
    exception: ExceptionPolicy = field(default_factory=ExceptionPolicy, metadata=_of(ExceptionPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSteps(Policy):
    produce: ProducePolicy = field(default_factory=ProducePolicy, metadata=_of(ProducePolicy))
    success: SuccessPolicy = field(default_factory=SuccessPolicy, metadata=_of(SuccessPolicy))
    exception: ExceptionPolicy = field(default_factory=ExceptionPolicy, metadata=_of(ExceptionPolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLoopPolicy(Policy):
    """The loop's own limits: its time, its count, the time of each transaction, and whether it waits for more."""

    batch: BatchPolicy = field(default_factory=BatchPolicy, metadata=_of(BatchPolicy))
    concurrency: ConcurrencyPolicy = field(default_factory=ConcurrencyPolicy, metadata=_of(ConcurrencyPolicy))
    timeout: float | None = field(default=None, metadata=TIME_LIMIT)
    limit: int | None = field(default=None, metadata=WHOLE_OR_NONE)
    transaction_timeout: float | None = field(default=None, metadata=TIME_LIMIT)
    streaming: bool = field(default=False, metadata=FLAG)
    empty_queue: EmptyQueuePolicy = field(default_factory=EmptyQueuePolicy, metadata=_of(EmptyQueuePolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLoopPolicy(Policy):
    """The loop's own limits: its time, its count, and the time of each transaction."""

    batch: BatchPolicy = field(default_factory=BatchPolicy, metadata=_of(BatchPolicy))
    concurrency: ConcurrencyPolicy = field(default_factory=ConcurrencyPolicy, metadata=_of(ConcurrencyPolicy))
    timeout: float | None = field(default=None, metadata=TIME_LIMIT)
    limit: int | None = field(default=None, metadata=WHOLE_OR_NONE)
    transaction_timeout: float | None = field(default=None, metadata=TIME_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPolicy(Policy):
    """Everything about how a consumer runs."""

    loop: ConsumerLoopPolicy = field(default_factory=ConsumerLoopPolicy, metadata=_of(ConsumerLoopPolicy))
    steps: ConsumerSteps = field(default_factory=ConsumerSteps, metadata=_of(ConsumerSteps))
    record_payload: bool = field(default=False, metadata=FLAG)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPolicy(Policy):
    """Everything about how a producer runs."""

    loop: ProducerLoopPolicy = field(default_factory=ProducerLoopPolicy, metadata=_of(ProducerLoopPolicy))
    steps: ProducerSteps = field(default_factory=ProducerSteps, metadata=_of(ProducerSteps))
    record_payload: bool = field(default=False, metadata=FLAG)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION)
