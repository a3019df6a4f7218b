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


def _of(kind: type[Policy], meaning: str) -> dict[str, Any]:
    rule = _rule(f"a {kind.__name__}", lambda value: isinstance(value, kind))
    return {**rule, "kind": kind, **_means(meaning)}


def _means(meaning: str, unit: str = "") -> dict[str, Any]:
    """What a field is for, in the words that pages show, and what its number counts."""
    return {"meaning": meaning, "unit": unit}


WHOLE = _rule("a whole number of at least 1", lambda value: type(value) is int and value >= 1)
WHOLE_OR_NONE = _rule("a whole number of at least 1", WHOLE["check"], optional=True)
DURATION = _rule("a number of seconds of at least 0", waits.is_duration)
TIME_LIMIT = _rule("a number of seconds above 0", lambda value: waits.is_duration(value) and value > 0, optional=True)
FACTOR = _rule("a number of at least 1", lambda value: waits.is_duration(value) and value >= 1)
FLAG = _rule("true or false", lambda value: type(value) is bool)
OBJECT = _rule("an object", lambda value: isinstance(value, Mapping))
NAME = _rule("a name", lambda value: isinstance(value, str) and value != "", optional=True)
RESERVED = "Reserved: checked, not used yet."
LOOP_TIME = _means("How long the whole loop may take.", "seconds")
LOOP_LIMIT = _means("How many transactions the loop starts before it ends.", "in all")
TRANSACTION_TIME = _means("How long one transaction may take, all its steps and waits together.", "seconds")
LATEST = _means("The longest wait that a handler in an executor may ask for.", "seconds")
ON_SPANS = _means("Whether payloads and the values of results may be on spans.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(Policy):
    """How often, for how long, and after which waits a stage is tried."""

    max_attempts: int = field(
        default=1, metadata=WHOLE | _means("How often it is tried, the first time included.", "attempts")
    )
    timeout: float | None = field(
        default=None, metadata=TIME_LIMIT | _means("How long each attempt may take.", "seconds")
    )
    backoff: float = field(default=0.0, metadata=DURATION | _means("The wait after the first failure.", "seconds"))
    backoff_multiplier: float = field(
        default=2.0, metadata=FACTOR | _means("By how much the wait grows with each further failure.", "times")
    )
    backoff_cap: float = field(default=0.0, metadata=DURATION | _means("The longest wait; 0 is no cap.", "seconds"))

    def delay(self, retry: int) -> float:
        """The wait before another attempt; `retry` 0 follows the first failure."""
        return waits.exponential(retry, backoff=self.backoff, multiplier=self.backoff_multiplier, cap=self.backoff_cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyPolicy(Policy):
    """How many transactions run at once."""

    value: int = field(default=1, metadata=WHOLE | _means("How many transactions run at once.", "at once"))
    min: int | None = field(default=None, metadata=WHOLE_OR_NONE | _means(RESERVED, "at once"))
    max: int | None = field(default=None, metadata=WHOLE_OR_NONE | _means(RESERVED, "at once"))

    def check(self) -> None:
        if self.min is not None and self.min > self.value:
            self.refuse("min", f"must be at most value ({self.value}), not {self.min}")
        if self.max is not None and self.max < self.value:
            self.refuse("max", f"must be at least value ({self.value}), not {self.max}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy(Policy):
    """How many transactions are taken at a time."""

    size: int = field(
        default=1,
        metadata=WHOLE | _means("How many a consumer fetches, or a producer works through, at a time.", "each"),
    )
    min_size: int | None = field(default=None, metadata=WHOLE_OR_NONE | _means(RESERVED, "each"))
    max_size: int | None = field(default=None, metadata=WHOLE_OR_NONE | _means(RESERVED, "each"))
    interval: float = field(default=0.0, metadata=DURATION | _means(RESERVED, "seconds"))

    def check(self) -> None:
        if self.min_size is not None and self.min_size > self.size:
            self.refuse("min_size", f"must be at most size ({self.size}), not {self.min_size}")
        if self.max_size is not None and self.max_size < self.size:
            self.refuse("max_size", f"must be at least size ({self.size}), not {self.max_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyQueuePolicy(Policy):
    """How long a streaming consumer waits when there was nothing."""

    backoff: float = field(
        default=0.1, metadata=DURATION | _means("The wait after the first fetch that brought nothing.", "seconds")
    )
    backoff_multiplier: float = field(
        default=2.0, metadata=FACTOR | _means("By how much it grows with each further empty fetch in a row.", "times")
    )
    backoff_cap: float = field(default=5.0, metadata=DURATION | _means("The longest wait; 0 is no cap.", "seconds"))
    interval: float = field(default=0.0, metadata=DURATION | _means(RESERVED, "seconds"))

    def delay(self, empty: int) -> float:
        """The wait after so many empty fetches in a row; 0 is the first."""
        return waits.exponential(empty, backoff=self.backoff, multiplier=self.backoff_multiplier, cap=self.backoff_cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy(Policy):
    """How a consumer asks its connector."""

    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=_of(RetryPolicy, "How often it is tried, and after which waits.")
    )
    extra: Mapping[str, Any] = field(
        default_factory=dict, metadata=OBJECT | _means("Handed to the connector's fetch as keyword arguments.")
    )
    connector_name: str | None = field(
        default=None,
        metadata=NAME | _means("Which of the task's connectors to fetch from; needed if there are several."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=_of(RetryPolicy, "How often it is tried, and after which waits.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=_of(RetryPolicy, "How often it is tried, and after which waits.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessPolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=_of(RetryPolicy, "How often it is tried, and after which waits.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionPolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=_of(RetryPolicy, "How often it is tried, and after which waits.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSteps(Policy):
    fetch: FetchPolicy = field(
        default_factory=FetchPolicy, metadata=_of(FetchPolicy, "Asking the connector for the next batch.")
    )
    process: ProcessPolicy = field(
        default_factory=ProcessPolicy, metadata=_of(ProcessPolicy, "The task's own work, process_transaction.")
    )
    success: SuccessPolicy = field(
        default_factory=SuccessPolicy, metadata=_of(SuccessPolicy, "Afterwards, handle_transaction_success.")
    )
    exception: ExceptionPolicy = field(
        default_factory=ExceptionPolicy,
        metadata=_of(ExceptionPolicy, "When the transaction has failed, handle_transaction_exception."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSteps(Policy):
    produce: ProducePolicy = field(
        default_factory=ProducePolicy, metadata=_of(ProducePolicy, "The task's own work, produce_transaction.")
    )
    success: SuccessPolicy = field(
        default_factory=SuccessPolicy, metadata=_of(SuccessPolicy, "Afterwards, handle_produce_success.")
    )
    exception: ExceptionPolicy = field(
        default_factory=ExceptionPolicy,
        metadata=_of(ExceptionPolicy, "When the transaction has failed, handle_produce_exception."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLoopPolicy(Policy):
    """The loop's own limits: its time, its count, the time of each transaction, and whether it waits for more."""

    batch: BatchPolicy = field(
        default_factory=BatchPolicy, metadata=_of(BatchPolicy, "How many transactions are taken at a time.")
    )
    concurrency: ConcurrencyPolicy = field(
        default_factory=ConcurrencyPolicy, metadata=_of(ConcurrencyPolicy, "How many of them run at once.")
    )
    timeout: float | None = field(default=None, metadata=TIME_LIMIT | LOOP_TIME)
    limit: int | None = field(default=None, metadata=WHOLE_OR_NONE | LOOP_LIMIT)
    transaction_timeout: float | None = field(default=None, metadata=TIME_LIMIT | TRANSACTION_TIME)
    streaming: bool = field(
        default=False, metadata=FLAG | _means("Whether the loop waits for more when there is nothing.")
    )
    empty_queue: EmptyQueuePolicy = field(
        default_factory=EmptyQueuePolicy, metadata=_of(EmptyQueuePolicy, "How long it waits when there is nothing.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLoopPolicy(Policy):
    """The loop's own limits: its time, its count, and the time of each transaction."""

    batch: BatchPolicy = field(
        default_factory=BatchPolicy, metadata=_of(BatchPolicy, "How many transactions are taken at a time.")
    )
    concurrency: ConcurrencyPolicy = field(
        default_factory=ConcurrencyPolicy, metadata=_of(ConcurrencyPolicy, "How many of them run at once.")
    )
    timeout: float | None = field(default=None, metadata=TIME_LIMIT | LOOP_TIME)
    limit: int | None = field(default=None, metadata=WHOLE_OR_NONE | LOOP_LIMIT)
    transaction_timeout: float | None = field(default=None, metadata=TIME_LIMIT | TRANSACTION_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPolicy(Policy):
    """Everything about how a consumer runs."""

    loop: ConsumerLoopPolicy = field(
        default_factory=ConsumerLoopPolicy, metadata=_of(ConsumerLoopPolicy, "How transactions are taken and run.")
    )
    steps: ConsumerSteps = field(default_factory=ConsumerSteps, metadata=_of(ConsumerSteps, "Each step's attempts."))
    record_payload: bool = field(default=False, metadata=FLAG | ON_SPANS)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION | LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPolicy(Policy):
    """Everything about how a producer runs."""

    loop: ProducerLoopPolicy = field(
        default_factory=ProducerLoopPolicy, metadata=_of(ProducerLoopPolicy, "How transactions are taken and run.")
    )
    steps: ProducerSteps = field(default_factory=ProducerSteps, metadata=_of(ProducerSteps, "Each step's attempts."))
    record_payload: bool = field(default=False, metadata=FLAG | ON_SPANS)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION | LATEST)
