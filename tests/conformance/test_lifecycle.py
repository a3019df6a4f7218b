"""What happens to one transaction, in each of the four engines."""

import pytest

from engines import ExceptionType, RetryPolicy, Transaction, TransactionException
from tests.conformance.harness import SLACK, Engine, Pause, Script, some

BUSINESS = TransactionException("no such account", ExceptionType.BUSINESS)
SYSTEM = TransactionException("unreachable", ExceptionType.SYSTEM)
TIMEOUT = TransactionException("too slow", ExceptionType.TIMEOUT)
THRICE = RetryPolicy(max_attempts=3)


def only(engine: Engine, script: Script, **options: object) -> Script:
    engine.run(script, some(1), **options)
    return script


def test_a_returned_value_is_a_success_and_goes_to_the_success_handler(engine: Engine) -> None:
    script = Script(work={"total": 3})
    report = engine.run(script, some(1))
    assert script.stages() == ["work", "success"]
    assert script.arguments("success") == [{"total": 3}]
    assert (report.processed, report.succeeded, report.failed) == (1, 1, 0)


def test_none_is_a_value_too(engine: Engine) -> None:
    assert only(engine, Script(work=None)).stages() == ["work", "success"]


def test_a_business_failure_is_not_retried_and_goes_to_the_exception_handler(engine: Engine) -> None:
    script = Script(work=BUSINESS)
    report = engine.run(script, some(1), work=THRICE)
    assert script.stages() == ["work", "exception"]
    assert script.arguments("exception") == [BUSINESS]
    assert (report.failed, report.failures[0].id, report.failures[0].exception) == (1, "t0", BUSINESS)


@pytest.mark.parametrize("raised", [SYSTEM, TIMEOUT])
def test_a_system_or_timeout_failure_is_retried_until_the_attempts_run_out(
    engine: Engine, raised: TransactionException
) -> None:
    script = only(engine, Script(work=raised), work=THRICE)
    assert script.stages() == ["work", "work", "work", "exception"]
    assert script.arguments("exception") == [raised]


def test_any_other_exception_is_wrapped_as_system_and_retried(engine: Engine) -> None:
    original = ZeroDivisionError("division by zero")
    script = only(engine, Script(work=original), work=THRICE)
    assert script.stages() == ["work", "work", "work", "exception"]
    (given,) = script.arguments("exception")
    assert isinstance(given, TransactionException)
    assert (given.category, given.__cause__, str(given)) == (ExceptionType.SYSTEM, original, "division by zero")


def test_a_timeout_error_of_the_tasks_own_is_system_not_timeout(engine: Engine) -> None:
    (given,) = only(engine, Script(work=TimeoutError("socket")), work=RetryPolicy(timeout=5)).arguments("exception")
    assert given.category is ExceptionType.SYSTEM


def test_a_retry_that_succeeds_is_a_success(engine: Engine) -> None:
    answers = iter([SYSTEM, TIMEOUT, "at last"])
    script = only(engine, Script(work=lambda _: next(answers)), work=THRICE)
    assert script.stages() == ["work", "work", "work", "success"]
    assert script.arguments("success") == ["at last"]


def test_the_success_handler_is_retried_by_its_own_policy_and_then_the_exception_handler_runs_once(
    engine: Engine,
) -> None:
    script = Script(success=SYSTEM)
    report = engine.run(script, some(1), work=RetryPolicy(max_attempts=5), success=RetryPolicy(max_attempts=2))
    assert script.stages() == ["work", "success", "success", "exception"]
    assert report.failed == 1


def test_a_business_failure_of_a_producers_success_handler_counts_as_system(producer: Engine) -> None:
    script = only(producer, Script(success=BUSINESS), success=RetryPolicy(max_attempts=2))
    assert script.stages() == ["work", "success", "success", "exception"]
    (given,) = script.arguments("exception")
    assert (given.category, given.__cause__) == (ExceptionType.SYSTEM, BUSINESS)


def test_a_business_failure_of_a_consumers_success_handler_is_not_retried(consumer: Engine) -> None:
    script = Script(success=BUSINESS)
    report = consumer.run(script, some(1), work=THRICE, success=THRICE)
    assert script.stages() == ["work", "success", "exception"]
    assert script.arguments("exception") == [BUSINESS]
    assert report.failures[0].exception is BUSINESS


class Rejected(TransactionException):
    """A decision of the task, by its class."""

    category = ExceptionType.BUSINESS


class RejectedOrder(Rejected):
    """The same with a constructor that does not call its parent's."""

    def __init__(self, order: int) -> None:
        self.order = order


@pytest.mark.parametrize(
    "raised", [Rejected("no"), RejectedOrder(7), TransactionException(ExceptionType.BUSINESS)], ids=repr
)
def test_a_business_failure_is_not_retried_however_its_category_is_given(
    engine: Engine, raised: TransactionException
) -> None:
    script = only(engine, Script(work=raised), work=THRICE)
    assert script.stages() == ["work", "exception"]
    assert script.arguments("exception") == [raised]


def test_the_success_handler_does_not_run_when_the_work_has_failed(engine: Engine) -> None:
    for raised in (BUSINESS, SYSTEM, TIMEOUT, ValueError()):
        assert "success" not in only(engine, Script(work=raised)).stages()


def test_the_exception_handler_is_retried_by_its_own_policy_and_its_failure_is_final(engine: Engine) -> None:
    broken = TransactionException("cannot tell anyone", ExceptionType.SYSTEM)
    script = Script(work=BUSINESS, exception=broken)
    report = engine.run(script, some(1), work=THRICE, exception=RetryPolicy(max_attempts=2))
    assert script.stages() == ["work", "exception", "exception"]
    assert report.failures[0].exception is broken


def test_exactly_one_handler_ends_every_transaction(engine: Engine) -> None:
    def work(transaction: Transaction) -> object:
        number = int(transaction.id[1:])
        return (BUSINESS, SYSTEM, "fine", ValueError("x"))[number % 4]

    script = Script(work=work)
    report = engine.run(script, some(40), work=RetryPolicy(max_attempts=2), concurrency=4, batch=10)
    for number in range(40):
        stages = script.stages(f"t{number}")
        assert stages.count("success") + stages.count("exception") == 1
    assert (report.succeeded, report.failed, report.processed) == (10, 30, 40)


def test_a_wrapped_error_has_a_message_even_if_the_original_has_none(engine: Engine) -> None:
    (given,) = only(engine, Script(work=KeyError())).arguments("exception")
    assert str(given) == "KeyError"
    assert given.transaction_id == "t0"


def test_the_transaction_is_the_same_at_every_attempt(engine: Engine) -> None:
    seen: list[Transaction] = []

    def work(transaction: Transaction) -> object:
        seen.append(transaction)
        return SYSTEM

    original = some(1)
    engine.run(Script(work=work), original, work=THRICE)
    assert all(transaction is original[0] for transaction in seen)
    assert original[0].payload == {"secret": "payload 0"}


def test_only_the_work_hook_is_required(engine: Engine) -> None:
    base = type(engine.task(Script()))
    ready = {"_do": base._do, "script": Script()}
    hook = "process_transaction" if engine.is_consumer else "produce_transaction"
    parent = base.__mro__[1]
    task = type("Minimal", (parent,), {**ready, hook: getattr(base, hook)})()
    report = engine.drive(lambda: engine.start(task, some(2), engine.policy(batch=2)))
    assert report.succeeded == 2


def test_the_waits_between_attempts_follow_the_policy(engine: Engine) -> None:
    script = Script(work=SYSTEM)
    report = engine.run(script, some(1), work=RetryPolicy(max_attempts=3, backoff=0.05, backoff_multiplier=2))
    assert 0.15 <= report.elapsed < 0.15 + SLACK


def test_the_wait_is_capped(engine: Engine) -> None:
    retry = RetryPolicy(max_attempts=4, backoff=0.02, backoff_multiplier=100, backoff_cap=0.03)
    assert 0.08 <= engine.run(Script(work=SYSTEM), some(1), work=retry).elapsed < 0.08 + SLACK


def test_policies_are_left_as_they_were(engine: Engine) -> None:
    policy = engine.policy(work=THRICE, concurrency=2, batch=3)
    before = policy.to_json()
    engine.drive(lambda: engine.start(engine.task(Script(work=SYSTEM)), some(3), policy))
    assert policy.to_json() == before


@pytest.mark.parametrize("raised", [GeneratorExit("odd"), type("Odd", (BaseException,), {})("odd")])
def test_an_odd_base_exception_is_a_failure_like_any_other(engine: Engine, raised: BaseException) -> None:
    script = Script(work=lambda transaction: raised if transaction.id == "t0" else "fine")
    report = engine.run(script, some(2), batch=2)
    assert (report.succeeded, report.failed) == (1, 1)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_handler_that_asks_to_end_the_process_has_failed_and_the_others_run(
    engine: Engine, raised: BaseException, timeout: float | None
) -> None:
    script = Script(work=lambda transaction: raised if transaction.id == "t0" else "fine")
    report = engine.run(script, some(3), work=RetryPolicy(max_attempts=2, timeout=timeout), batch=3)
    assert (report.succeeded, report.failed) == (2, 1)
    assert script.stages("t0") == ["work", "work", "exception"]
    [(uid, error)] = report.failures
    assert isinstance(error, TransactionException)
    assert (uid, error.category, error.__cause__) == ("t0", ExceptionType.SYSTEM, raised)


def test_a_slow_hook_is_waited_for_when_nothing_limits_it(engine: Engine) -> None:
    assert engine.run(Script(work=Pause(0.05, "slow")), some(1)).succeeded == 1
