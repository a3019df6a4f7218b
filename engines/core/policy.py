"""Policies: frozen, complete, valid on arrival. They say how the engines work, never what tasks do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.core import backoff as waits
from engines.core.rules import (
    DURATION,
    DURATION_OR_NONE,
    FACTOR,
    FLAG,
    LATER,
    NAME,
    OBJECT,
    TIME_LIMIT,
    WHOLE,
    WHOLE_OR_NONE,
    Policy,
    means,
    nested,
    reserved,
)

LOOP_TIME = means("Time limit of the whole loop.", "seconds")
LOOP_LIMIT = means("The loop ends after starting this many transactions.", "in all")
TRANSACTION_TIME = means("Time limit of one transaction, all steps and delays included.", "seconds")
PARKED = means(
    "Longest wait between two attempts of the work that keeps a slot; a longer one is spent in the database. "
    "Without a value every wait keeps its slot. Used by the durable queue, in loops without a limit.",
    "seconds",
)
LATEST = means("Longest retry delay that a handler in an executor may ask for.", "seconds")
ON_SPANS = means("Whether spans contain payloads and result values.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(Policy):
    """Attempts, time limit and delays of a stage."""

    max_attempts: int = field(
        default=1, metadata=WHOLE | means("Maximum number of attempts, the first included.", "attempts")
    )
    timeout: float | None = field(default=None, metadata=TIME_LIMIT | means("Time limit of each attempt.", "seconds"))
    backoff: float = field(default=0.0, metadata=DURATION | means("Delay after the first failure.", "seconds"))
    backoff_multiplier: float = field(
        default=2.0, metadata=FACTOR | means("Factor by which the delay grows with each further failure.", "times")
    )
    backoff_cap: float = field(default=0.0, metadata=DURATION | means("Longest delay; 0 means no cap.", "seconds"))

    def delay(self, retry: int) -> float:
        """The wait before another attempt; `retry` 0 follows the first failure."""
        return waits.exponential(retry, backoff=self.backoff, multiplier=self.backoff_multiplier, cap=self.backoff_cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyPolicy(Policy):
    """The number of transactions that run at once."""

    value: int = field(default=1, metadata=WHOLE | means("Number of transactions that run at once.", "at once"))
    min: int | None = field(default=None, metadata=WHOLE_OR_NONE | reserved("at once"))
    max: int | None = field(default=None, metadata=WHOLE_OR_NONE | reserved("at once"))

    def check(self) -> None:
        if self.min is not None and self.min > self.value:
            self.refuse("min", f"must be at most value ({self.value}), not {self.min}")
        if self.max is not None and self.max < self.value:
            self.refuse("max", f"must be at least value ({self.value}), not {self.max}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy(Policy):
    """The number of transactions in a batch."""

    size: int = field(
        default=1,
        metadata=WHOLE | means("Number of transactions that are fetched or produced at a time.", "each"),
    )
    min_size: int | None = field(default=None, metadata=WHOLE_OR_NONE | reserved("each"))
    max_size: int | None = field(default=None, metadata=WHOLE_OR_NONE | reserved("each"))
    interval: float = field(default=0.0, metadata=DURATION | reserved("seconds"))
    oldest_first_every: int | None = field(
        default=None,
        metadata=WHOLE_OR_NONE
        | means(
            "Every n-th batch from the database takes the oldest transactions first, whatever their priority.",
            "batches",
        ),
    )

    def check(self) -> None:
        if self.min_size is not None and self.min_size > self.size:
            self.refuse("min_size", f"must be at most size ({self.size}), not {self.min_size}")
        if self.max_size is not None and self.max_size < self.size:
            self.refuse("max_size", f"must be at least size ({self.size}), not {self.max_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyQueuePolicy(Policy):
    """The delays of a streaming consumer after empty fetches."""

    backoff: float = field(default=0.1, metadata=DURATION | means("Delay after the first empty fetch.", "seconds"))
    backoff_multiplier: float = field(
        default=2.0,
        metadata=FACTOR | means("Factor by which the delay grows with each consecutive empty fetch.", "times"),
    )
    backoff_cap: float = field(default=5.0, metadata=DURATION | means("Longest delay; 0 means no cap.", "seconds"))
    interval: float = field(default=0.0, metadata=DURATION | reserved("seconds"))

    def delay(self, empty: int) -> float:
        """The wait after so many empty fetches in a row; 0 is the first."""
        return waits.exponential(empty, backoff=self.backoff, multiplier=self.backoff_multiplier, cap=self.backoff_cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPolicy(Policy):
    """The retries of a step."""

    retry: RetryPolicy = nested(RetryPolicy, "Attempts, time limit and delays.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy(StepPolicy):
    """The fetch of a consumer."""

    extra: Mapping[str, Any] = field(
        default_factory=dict, metadata=OBJECT | means("Keyword arguments for the connector's fetch.")
    )
    connector_name: str | None = field(
        default=None,
        metadata=NAME | means("The task's connector to fetch from; required if there are several."),
    )


class ProcessPolicy(StepPolicy):
    __slots__ = ()


class ProducePolicy(StepPolicy):
    __slots__ = ()


class SuccessPolicy(StepPolicy):
    __slots__ = ()


class ExceptionPolicy(StepPolicy):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSteps(Policy):
    fetch: FetchPolicy = nested(FetchPolicy, "Fetches the next batch from the connector.")
    process: ProcessPolicy = nested(ProcessPolicy, "Runs the task's process_transaction.")
    success: SuccessPolicy = nested(SuccessPolicy, "Runs handle_transaction_success after a success.")
    exception: ExceptionPolicy = nested(ExceptionPolicy, "Runs handle_transaction_exception after a failure.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSteps(Policy):
    produce: ProducePolicy = nested(ProducePolicy, "Runs the task's produce_transaction.")
    success: SuccessPolicy = nested(SuccessPolicy, "Runs handle_produce_success after a success.")
    exception: ExceptionPolicy = nested(ExceptionPolicy, "Runs handle_produce_exception after a failure.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPolicy(Policy):
    """The limits of a loop: its time, its count, and the time of each transaction."""

    batch: BatchPolicy = nested(BatchPolicy, "Number of transactions per batch.")
    concurrency: ConcurrencyPolicy = nested(ConcurrencyPolicy, "Number of transactions that run at once.")
    timeout: float | None = field(default=None, metadata=TIME_LIMIT | LOOP_TIME)
    limit: int | None = field(default=None, metadata=WHOLE_OR_NONE | LOOP_LIMIT)
    transaction_timeout: float | None = field(default=None, metadata=TIME_LIMIT | TRANSACTION_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLoopPolicy(LoopPolicy):
    """The limits of a loop, and whether it waits for more."""

    streaming: bool = field(
        default=False, metadata=FLAG | means("Whether the loop waits for transactions when there are none.")
    )
    empty_queue: EmptyQueuePolicy = nested(EmptyQueuePolicy, "Delays between empty fetches.")


class ProducerLoopPolicy(LoopPolicy):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPolicy(Policy):
    """Everything about how a consumer runs."""

    loop: ConsumerLoopPolicy = nested(ConsumerLoopPolicy, "Batches, concurrency and limits of the loop.")
    steps: ConsumerSteps = nested(ConsumerSteps, "Attempts, time limit and delays of each step.")
    record_payload: bool = field(default=False, metadata=FLAG | ON_SPANS)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION | LATEST)
    park_after: float | None = field(default=1.0, metadata=DURATION_OR_NONE | LATER | PARKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPolicy(Policy):
    """Everything about how a producer runs."""

    loop: ProducerLoopPolicy = nested(ProducerLoopPolicy, "Batches, concurrency and limits of the loop.")
    steps: ProducerSteps = nested(ProducerSteps, "Attempts, time limit and delays of each step.")
    record_payload: bool = field(default=False, metadata=FLAG | ON_SPANS)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION | LATEST)
    park_after: float | None = field(default=1.0, metadata=DURATION_OR_NONE | LATER | PARKED)
