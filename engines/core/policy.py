"""Policies: frozen, complete, valid on arrival. They say how the engines work, never what tasks do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.core import backoff as waits
from engines.core.rules import (
    DURATION,
    FACTOR,
    FLAG,
    NAME,
    OBJECT,
    TIME_LIMIT,
    WHOLE,
    WHOLE_OR_NONE,
    Policy,
    means,
    part,
)

RESERVED = "Reserved: validated, not used yet."
LOOP_TIME = means("Time limit of the whole loop.", "seconds")
LOOP_LIMIT = means("The loop ends after starting this many transactions.", "in all")
TRANSACTION_TIME = means("Time limit of one transaction, all steps and delays included.", "seconds")
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
    min: int | None = field(default=None, metadata=WHOLE_OR_NONE | means(RESERVED, "at once"))
    max: int | None = field(default=None, metadata=WHOLE_OR_NONE | means(RESERVED, "at once"))

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
    min_size: int | None = field(default=None, metadata=WHOLE_OR_NONE | means(RESERVED, "each"))
    max_size: int | None = field(default=None, metadata=WHOLE_OR_NONE | means(RESERVED, "each"))
    interval: float = field(default=0.0, metadata=DURATION | means(RESERVED, "seconds"))
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
    interval: float = field(default=0.0, metadata=DURATION | means(RESERVED, "seconds"))

    def delay(self, empty: int) -> float:
        """The wait after so many empty fetches in a row; 0 is the first."""
        return waits.exponential(empty, backoff=self.backoff, multiplier=self.backoff_multiplier, cap=self.backoff_cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy(Policy):
    """The fetch of a consumer."""

    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=part(RetryPolicy, "Attempts, time limit and delays.")
    )
    extra: Mapping[str, Any] = field(
        default_factory=dict, metadata=OBJECT | means("Keyword arguments for the connector's fetch.")
    )
    connector_name: str | None = field(
        default=None,
        metadata=NAME | means("The task's connector to fetch from; required if there are several."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=part(RetryPolicy, "Attempts, time limit and delays.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=part(RetryPolicy, "Attempts, time limit and delays.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessPolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=part(RetryPolicy, "Attempts, time limit and delays.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionPolicy(Policy):
    retry: RetryPolicy = field(
        default_factory=RetryPolicy, metadata=part(RetryPolicy, "Attempts, time limit and delays.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSteps(Policy):
    fetch: FetchPolicy = field(
        default_factory=FetchPolicy, metadata=part(FetchPolicy, "Fetches the next batch from the connector.")
    )
    process: ProcessPolicy = field(
        default_factory=ProcessPolicy, metadata=part(ProcessPolicy, "Runs the task's process_transaction.")
    )
    success: SuccessPolicy = field(
        default_factory=SuccessPolicy, metadata=part(SuccessPolicy, "Runs handle_transaction_success after a success.")
    )
    exception: ExceptionPolicy = field(
        default_factory=ExceptionPolicy,
        metadata=part(ExceptionPolicy, "Runs handle_transaction_exception after a failure."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSteps(Policy):
    produce: ProducePolicy = field(
        default_factory=ProducePolicy, metadata=part(ProducePolicy, "Runs the task's produce_transaction.")
    )
    success: SuccessPolicy = field(
        default_factory=SuccessPolicy, metadata=part(SuccessPolicy, "Runs handle_produce_success after a success.")
    )
    exception: ExceptionPolicy = field(
        default_factory=ExceptionPolicy,
        metadata=part(ExceptionPolicy, "Runs handle_produce_exception after a failure."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLoopPolicy(Policy):
    """The loop's own limits: its time, its count, the time of each transaction, and whether it waits for more."""

    batch: BatchPolicy = field(
        default_factory=BatchPolicy, metadata=part(BatchPolicy, "Number of transactions per batch.")
    )
    concurrency: ConcurrencyPolicy = field(
        default_factory=ConcurrencyPolicy, metadata=part(ConcurrencyPolicy, "Number of transactions that run at once.")
    )
    timeout: float | None = field(default=None, metadata=TIME_LIMIT | LOOP_TIME)
    limit: int | None = field(default=None, metadata=WHOLE_OR_NONE | LOOP_LIMIT)
    transaction_timeout: float | None = field(default=None, metadata=TIME_LIMIT | TRANSACTION_TIME)
    streaming: bool = field(
        default=False, metadata=FLAG | means("Whether the loop waits for transactions when there are none.")
    )
    empty_queue: EmptyQueuePolicy = field(
        default_factory=EmptyQueuePolicy, metadata=part(EmptyQueuePolicy, "Delays between empty fetches.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLoopPolicy(Policy):
    """The loop's own limits: its time, its count, and the time of each transaction."""

    batch: BatchPolicy = field(
        default_factory=BatchPolicy, metadata=part(BatchPolicy, "Number of transactions per batch.")
    )
    concurrency: ConcurrencyPolicy = field(
        default_factory=ConcurrencyPolicy, metadata=part(ConcurrencyPolicy, "Number of transactions that run at once.")
    )
    timeout: float | None = field(default=None, metadata=TIME_LIMIT | LOOP_TIME)
    limit: int | None = field(default=None, metadata=WHOLE_OR_NONE | LOOP_LIMIT)
    transaction_timeout: float | None = field(default=None, metadata=TIME_LIMIT | TRANSACTION_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPolicy(Policy):
    """Everything about how a consumer runs."""

    loop: ConsumerLoopPolicy = field(
        default_factory=ConsumerLoopPolicy,
        metadata=part(ConsumerLoopPolicy, "Batches, concurrency and limits of the loop."),
    )
    steps: ConsumerSteps = field(
        default_factory=ConsumerSteps, metadata=part(ConsumerSteps, "Attempts, time limit and delays of each step.")
    )
    record_payload: bool = field(default=False, metadata=FLAG | ON_SPANS)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION | LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPolicy(Policy):
    """Everything about how a producer runs."""

    loop: ProducerLoopPolicy = field(
        default_factory=ProducerLoopPolicy,
        metadata=part(ProducerLoopPolicy, "Batches, concurrency and limits of the loop."),
    )
    steps: ProducerSteps = field(
        default_factory=ProducerSteps, metadata=part(ProducerSteps, "Attempts, time limit and delays of each step.")
    )
    record_payload: bool = field(default=False, metadata=FLAG | ON_SPANS)
    retry_after_ceiling: float = field(default=3600, metadata=DURATION | LATEST)
