"""Transactions that are lent for a time: what is lost does not start, and what runs of it is told."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import engines
from engines import ConsumerPolicy, ConsumerSteps, ProcessPolicy, RetryPolicy, Transaction
from engines.connectors.freshness import Moment, now
from engines.connectors.memory import MemoryConnector
from engines.core.outcome import Cancelled, Success
from engines.transactions.leases import Lease

pytestmark = pytest.mark.once

THREE_ATTEMPTS = ConsumerPolicy(steps=ConsumerSteps(process=ProcessPolicy(retry=RetryPolicy(max_attempts=3))))


class Lender(MemoryConnector):
    """Lends transactions, and takes them away when a test says so."""

    def __init__(self, *transactions: Transaction) -> None:
        super().__init__(transactions)
        self.asked: list[str] = []
        self.lost: set[str] = set()
        self.cancelled: set[str] = set()
        self.callback: Callable[[Sequence[Transaction]], None] | None = None

    def begin(self, transaction: Transaction) -> bool:
        self.asked.append(transaction.id)
        return transaction.id not in self.lost

    async def begin_async(self, transaction: Transaction) -> bool:
        return self.begin(transaction)

    def is_lost(self, transaction: Transaction) -> bool:
        return transaction.id in self.lost

    def is_cancelled(self, transaction: Transaction) -> bool:
        return transaction.id in self.cancelled

    def on_lost(self, callback: Callable[[Sequence[Transaction]], None] | None) -> None:
        self.callback = callback or self.callback

    def lose(self, transaction: Transaction) -> None:
        self.lost.add(transaction.id)
        assert self.callback is not None
        self.callback([transaction])


class Noting:
    """Notes which of its hooks are called; the first of them does what a test says."""

    def __init__(self, lender: Lender, act: Callable[[Transaction], Any] = lambda _: None) -> None:
        super().__init__(connectors={"lender": lender})  # type: ignore[call-arg]
        self.noted: list[str] = []
        self.act = act


class Threaded(Noting, engines.ConsumerTask):
    def process_transaction(self, transaction: Transaction) -> Any:
        self.noted.append(f"process {transaction.id}")
        return self.act(transaction)

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        self.noted.append(f"success {transaction.id}")

    def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> None:
        self.noted.append(f"exception {transaction.id}")


class Asynchronous(Noting, engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> Any:
        self.noted.append(f"process {transaction.id}")
        value = self.act(transaction)
        return await value if inspect.isawaitable(value) else value

    async def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        self.noted.append(f"success {transaction.id}")

    async def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> None:
        self.noted.append(f"exception {transaction.id}")


def consume(task: Any, policy: ConsumerPolicy = THREE_ATTEMPTS) -> Any:
    report = task.consume_transactions(policy)
    return asyncio.run(report) if inspect.iscoroutine(report) else report


def failing(_transaction: Transaction) -> None:
    msg = "broken"
    raise ValueError(msg)


both = pytest.mark.parametrize("kind", [Threaded, Asynchronous])


@both
def test_every_handler_is_asked_for_before_it_starts(kind: Any) -> None:
    lender = Lender(Transaction("a", {}))
    assert consume(kind(lender)).succeeded == 1
    assert lender.asked == ["a", "a"]  # process, success
    lender = Lender(Transaction("b", {}))
    assert consume(kind(lender, failing)).failed == 1
    assert lender.asked == ["b"] * 4  # three attempts, exception


@both
def test_what_is_lost_before_it_starts_does_not_start_and_counts_for_nothing(kind: Any) -> None:
    lender = Lender(Transaction("a", {}), Transaction("b", {}))
    lender.lost = {"a"}
    task = kind(lender)
    report = consume(task)
    assert task.noted == ["process b", "success b"]
    assert (report.succeeded, report.failed) == (1, 0)


@both
def test_an_attempt_that_fails_after_its_lease_was_lost_is_neither_retried_nor_handled(kind: Any) -> None:
    lender = Lender(Transaction("a", {}))

    def lose_and_fail(transaction: Transaction) -> None:
        lender.lose(transaction)
        assert engines.current_attempt().is_lease_lost
        failing(transaction)

    task = kind(lender, lose_and_fail)
    report = consume(task)
    assert task.noted == ["process a"]
    assert (report.succeeded, report.failed) == (0, 0)


def test_a_coroutine_whose_lease_is_lost_is_cancelled_in_mid_wait() -> None:
    lender = Lender(Transaction("a", {}))

    async def lose_and_wait(transaction: Transaction) -> None:
        lender.lose(transaction)
        await asyncio.sleep(3600)

    task = Asynchronous(lender, lose_and_wait)
    report = consume(task)
    assert task.noted == ["process a"]
    assert (report.succeeded, report.failed) == (0, 0)


@both
def test_what_is_cancelled_before_it_starts_does_not_start(kind: Any) -> None:
    lender = Lender(Transaction("a", {}), Transaction("b", {}))
    lender.cancelled = {"a"}
    task = kind(lender)
    report = consume(task)
    assert task.noted == ["process b", "success b"]
    assert (report.succeeded, report.failed) == (1, 0)
    assert dict(lender.outcomes) == {"a": Cancelled(), "b": Success(None)}


@both
def test_an_attempt_that_fails_once_it_is_cancelled_is_the_last_and_is_handled(kind: Any) -> None:
    lender = Lender(Transaction("a", {}))

    def cancel_and_fail(transaction: Transaction) -> None:
        assert not engines.current_attempt().is_cancelled
        lender.cancelled.add(transaction.id)
        assert engines.current_attempt().is_cancelled
        failing(transaction)

    task = kind(lender, cancel_and_fail)
    report = consume(task)
    assert task.noted == ["process a", "exception a"]
    assert (report.succeeded, report.failed) == (0, 0)
    [(_, outcome)] = lender.outcomes
    assert isinstance(outcome, Cancelled)
    assert str(outcome.failure and outcome.failure.error) == "broken"


class CancelledAtTheNext(Lender):
    """Somebody cancels while it waits for its next attempt: it was not when the one before had failed."""

    looks = 0

    def is_cancelled(self, transaction: Transaction) -> bool:
        self.looks += 1
        return self.looks > 2  # before it starts, and after its first attempt


@both
def test_what_is_cancelled_while_it_waits_in_its_slot_is_not_tried_again(kind: Any) -> None:
    task = kind(CancelledAtTheNext(Transaction("a", {})), failing)
    report = consume(task)
    assert task.noted == ["process a", "exception a"]
    assert (report.succeeded, report.failed) == (0, 0)


def lease_of(seconds: float, confirmed_at: Moment | None, **more: Any) -> Lease:
    return Lease(1, 1, 1, 1, None, seconds=seconds, confirmed_at=confirmed_at, **more)


def test_a_lease_is_known_for_its_length_less_a_margin_on_both_clocks() -> None:
    moment = now()
    assert lease_of(600.0, moment).is_confirmed
    # The machine was suspended; or the wall clock was set ahead after a pause that no other clock has seen.
    for earlier in (moment._replace(since_boot=moment.since_boot - 541), moment._replace(wall=moment.wall - 541)):
        assert not lease_of(600.0, earlier).is_confirmed


def test_a_lease_that_is_lost_is_not_ours_whatever_the_clock_says() -> None:
    assert not lease_of(600.0, now(), is_lost=True).is_confirmed


def test_a_lease_is_not_ours_until_somebody_has_confirmed_it() -> None:
    assert not lease_of(600.0, None).is_confirmed
