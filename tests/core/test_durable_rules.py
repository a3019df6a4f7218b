"""Rules of durable transactions: states, kinds of failure, differences, pace, explanations."""

from typing import Any

import pytest

from engines.core import explanation, failures
from engines.core.attempt import AttemptRecord
from engines.core.errors import POISON, ExceptionType, PoisonError, TransactionException, category_in, wrap, wrapped
from engines.core.failures import fingerprint, normalise
from engines.core.lifecycle import plan_of
from engines.core.outcome import Failure, Success
from engines.core.pacing import FIRST, Alarms, Prefetch
from engines.core.policy import ConsumerPolicy, ConsumerSteps, ProcessPolicy, ProducerPolicy, RetryPolicy
from engines.core.states import State
from engines.core.steps import Stage
from ergon_site.access.core import differences


def test_states_have_words_and_ends() -> None:
    assert [state.word for state in State if state.is_final] == ["succeeded", "failed", "cancelled"]


@pytest.mark.parametrize(
    ("message", "general"),
    [
        ("order 17 not found", "order # not found"),
        ("invoice R-00417 is short of -3.50", "invoice R-# is short of #"),
        ("no such customer 'Ada Lovelace'", "no such customer '…'"),
        ('key "x" and `y`', "key '…' and '…'"),
        ("at 0x7f3a at 12:30:01", "at … at #"),
        ("id 01a1dd8f-d192-760d-90e9-eda22267c129 gone", "id … gone"),
        ("digest deadbeefdeadbeef00", "digest …"),
        ("first line\nsecond 17", "first line"),
        ("", ""),
    ],
)
def test_messages_that_say_the_same_in_general_are_the_same(message: str, general: str) -> None:
    assert normalise(message) == general


def test_a_fingerprint_tells_sources_steps_types_and_messages_apart() -> None:
    one = fingerprint("orders", "process", "ValueError", "order 17 is bad")
    assert one == fingerprint("orders", "process", "ValueError", "order 18 is bad")
    others = {
        fingerprint("refunds", "process", "ValueError", "order 17 is bad"),
        fingerprint("orders", "success", "ValueError", "order 17 is bad"),
        fingerprint("orders", "process", "KeyError", "order 17 is bad"),
        fingerprint("orders", "process", "ValueError", "order is bad"),
    }
    assert len(others | {one}) == 5


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [{"path": "a", "before": 1, "after": 2}]),
        ({"a": {"b": 1}}, {"a": {}}, [{"path": "a.b", "before": 1}]),
        ({}, {"a": None}, [{"path": "a", "after": None}]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [{"path": "a[1]", "before": 2, "after": 3}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"path": "a", "before": [1], "after": [1, 2]}]),
        (1, True, [{"path": "", "before": 1, "after": True}]),
        ("x", "y", [{"path": "", "before": "x", "after": "y"}]),
    ],
)
def test_differences_name_each_place_that_changed(before: Any, after: Any, expected: list[Any]) -> None:
    assert differences.changes(before, after) == expected


def test_the_pace_asks_for_half_a_second_of_work() -> None:
    pace = Prefetch()
    assert pace.wanted(100, done=0, now=1.0) == FIRST
    assert pace.wanted(1000, done=0, now=1.0) == FIRST  # nothing is known yet
    assert pace.wanted(1000, done=10, now=1.125) == 40  # ten in an eighth of a second
    assert pace.wanted(1000, done=50, now=1.125) == 400  # no more than ten times as many at once
    assert pace.wanted(100, done=450, now=1.25) == 100  # never more than asked for


def test_the_pace_of_slow_work_is_one_at_a_time_in_the_end() -> None:
    pace = Prefetch()
    wanted = [pace.wanted(100, done=done, now=1.0 + 60 * done) for done in range(4)]
    assert wanted == [FIRST, 1, 1, 1]


def error(
    message: str = "m", category: ExceptionType = ExceptionType.SYSTEM, cause: Exception | None = None
) -> Failure:
    failure = TransactionException(message, category)
    return Failure(failure if cause is None else wrap(failure, cause))


def tried(stage: Stage, outcome: Any) -> AttemptRecord:
    return AttemptRecord(stage, 1, 1, 0.0, 0.0, outcome)


def test_alarms_tell_of_the_next_moment_once_and_of_many_in_one_tenth_of_a_second_as_one() -> None:
    alarms = Alarms()
    assert alarms.due_in(0.0) is None
    for moment in (12.0, 11.01, 11.02, 11.1):
        alarms.add(moment)
    assert alarms.due_in(10.0) == pytest.approx(1.1)
    assert alarms.due_in(11.1) == pytest.approx(0.9)
    assert alarms.due_in(12.0) is None
    alarms.add(12.5)
    assert alarms.due_in(12.0) == pytest.approx(0.5)


def test_a_failure_that_was_kept_is_told_as_before() -> None:
    failure = Failure(TransactionException("no answer", ExceptionType.TIMEOUT))
    failure.error.error_type = "BankError"
    told = failures.summary(failure, [tried(Stage.PRODUCE, failure)])
    stage, restored = failures.restored(told)
    assert failures.summary(restored, [tried(stage, restored)]) == told


def test_a_failure_is_told_by_the_error_that_the_task_raised() -> None:
    failure = error("no such key", cause=KeyError("k"))
    told = failures.summary(failure, [tried(Stage.PROCESS, failure)])
    assert told == {"type": "KeyError", "message": "no such key", "category": "SYSTEM", "step": "process"}
    assert failures.traceback_of(failure.error).startswith("KeyError: 'k'")


class OrderRejected(TransactionException):
    """An error of a task."""


def rejected() -> OrderRejected:
    """Raised over another error, as tasks do."""

    def reject() -> None:
        accounts: dict[str, str] = {}
        try:
            accounts["account"] += "7"
        except KeyError as error:
            msg = "order 7 has no account"
            raise OrderRejected(msg, ExceptionType.BUSINESS) from error

    with pytest.raises(OrderRejected) as caught:
        reject()
    return caught.value


def test_an_error_is_told_by_its_own_name_whatever_it_was_raised_from() -> None:
    error = rejected()
    told = failures.summary(Failure(error), [])
    assert (told["type"], told["message"]) == ("OrderRejected", "order 7 has no account")
    text = failures.traceback_of(error)
    assert text.splitlines()[-1].endswith("OrderRejected: order 7 has no account")
    assert "KeyError: 'account'" in text
    assert "direct cause" in text


def test_an_error_that_the_engine_wrapped_is_told_with_what_it_was_raised_from() -> None:
    foreign = RuntimeError("no ledger")
    foreign.__cause__ = KeyError("ledger")
    for error in (wrapped(foreign), wrapped(rejected())):
        assert failures.error_type(error) in {"RuntimeError", "OrderRejected"}
        text = failures.traceback_of(error)
        assert "KeyError" in text
        assert "TransactionException" not in text


def test_a_wrapper_that_has_lost_its_cause_is_told_as_it_is() -> None:
    error = wrapped(KeyError("k"))
    error.__cause__ = None
    assert failures.error_type(error) == "TransactionException"


class BrokenChainError(Exception):
    """An error whose traceback cannot be written."""

    __cause__ = property(lambda _: 1 / 0)


def test_an_error_whose_traceback_cannot_be_written_is_told_in_one_line() -> None:
    assert failures.traceback_of(wrapped(BrokenChainError("odd"))) == "BrokenChainError: odd"


def test_fields_of_a_tasks_own_error_do_not_get_into_the_way() -> None:
    error = rejected()
    error.details = {"order": 7}  # type: ignore[assignment]
    assert "KeyError" in failures.traceback_of(error)
    foreign = ValueError("bad")
    foreign.error_type = "INVALID"  # type: ignore[attr-defined]
    assert failures.error_type(wrapped(foreign)) == "ValueError"
    error.error_type = 42  # type: ignore[assignment]
    assert failures.error_type(error) == "42"


def test_what_is_told_of_a_failure_holds_no_secret() -> None:
    error = wrapped(ConnectionError("cannot reach amqp://ada:hunter2@broker/ with token=abcdef"))
    assert failures.message_of(error) == "cannot reach amqp://•••@broker/ with token=•••"
    assert "hunter2" not in failures.traceback_of(error)
    error.__cause__ = None
    error.details = "died: password=hunter2"
    assert failures.traceback_of(error) == "died: password=•••"


@pytest.mark.parametrize(
    ("category", "meant"),
    [("BUSINESS", ExceptionType.BUSINESS), (None, ExceptionType.SYSTEM), ("nonsense", ExceptionType.SYSTEM)],
)
def test_a_category_that_is_none_is_system(category: Any, meant: ExceptionType) -> None:
    error = TransactionException("no")
    error.category = category
    assert category_in(error) is meant
    assert Failure(error).is_final is (meant is ExceptionType.BUSINESS)


def test_a_failure_over_a_failure_is_told_as_the_first_with_the_handler_beside_it() -> None:
    first = error("no such key", ExceptionType.BUSINESS, KeyError("k"))
    second = error("no mail either", cause=OSError("mail"))._replace(origin=first)
    told = failures.summary(second, [tried(Stage.PROCESS, first), tried(Stage.EXCEPTION, second)])
    assert told == {
        "type": "KeyError",
        "message": "no such key",
        "category": "BUSINESS",
        "step": "process",
        "exception_handler": {"type": "OSError", "message": "no mail either"},
    }


def test_a_failure_over_a_failure_keeps_the_category_of_the_first() -> None:
    first = error(category=ExceptionType.TIMEOUT)
    assert failures.category_of(error()._replace(origin=first)) is ExceptionType.TIMEOUT
    assert category_in(ValueError("plain")) is ExceptionType.SYSTEM


@pytest.mark.parametrize(
    ("attempts", "step"),
    [
        ([], Stage.PROCESS),
        ([tried(Stage.PROCESS, error())], Stage.PROCESS),
        ([tried(Stage.PROCESS, Success(1)), tried(Stage.SUCCESS, error())], Stage.SUCCESS),
        ([tried(Stage.PRODUCE, error()), tried(Stage.EXCEPTION, error())], Stage.PRODUCE),
        ([tried(Stage.EXCEPTION, error())], Stage.EXCEPTION),
    ],
)
def test_the_step_that_failed_is_the_last_before_the_exception_handler(
    attempts: list[AttemptRecord], step: Stage
) -> None:
    assert failures.failed_step(attempts) is step


def test_an_attempt_without_its_error_still_counts_as_failed() -> None:
    failed = tried(Stage.SUCCESS, error())
    assert failures.failed_step([failed.without_error()]) is Stage.SUCCESS
    assert failed.without_error()._replace(outcome=failed.outcome) == failed
    succeeded = tried(Stage.SUCCESS, Success(1))
    assert succeeded.without_error() is succeeded


def test_texts_are_made_such_that_every_column_takes_them() -> None:
    assert failures.storable("a\x00b\ud800") == "a\ufffdb?"
    assert len(failures.message_of(ValueError("x" * 20_000))) == failures.LONGEST_MESSAGE


def test_the_plan_of_a_policy_is_by_its_kind() -> None:
    retry = RetryPolicy(max_attempts=5)
    policy = ConsumerPolicy(steps=ConsumerSteps(process=ProcessPolicy(retry=retry)))
    assert plan_of(policy)[:2] == (Stage.PROCESS, retry)
    assert plan_of(ProducerPolicy()).work is Stage.PRODUCE


CALM = {
    "paused_by": "",
    "pause_reason": "",
    "due_in": -1.0,
    "workers": ["host:1"],
    "rescues": 0,
    "ahead": 0,
    "is_ahead_capped": False,
    "ended_ago": 30.0,
    "deliveries": 1,
    "dead_letter": None,
    "error": None,
    "result_note": None,
    "hindrances": [],
    "worker": "host:1",
    "running_for": 0.25,
    "attempt": None,
    "attempts_spent": 0,
    "cancel_requested_for": None,
}
PARKED = {"type": "BankError", "message": "no answer", "spent": 3, "of": 6, "is_parked": True}
OPEN_FOR_NOW = {"what": "breaker rank/rank_snapshot open", "until": "2026-11-15T14:05:30+00:00"}
FORCED_OPEN = {"what": "breaker rank/rank_snapshot open", "until": None}


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {"state": "pending", "paused_by": "ada", "paused_for": 720, "pause_reason": "flood"},
            "waiting: the pipeline was paused by ada 12 min ago (reason: flood)",
        ),
        (
            {"state": "pending", "paused_by": "ada", "paused_for": 7300, "pause_reason": ""},
            "waiting: the pipeline was paused by ada 2 h ago",
        ),
        ({"state": "pending", "due_in": 40}, "due in 40 s"),
        (
            {"state": "pending", "due_in": 40, "error": {"type": "RetryJob", "message": "not yet", "spent": 1}},
            "due in 40 s; its handler asked for a retry after 1 attempt (RetryJob: not yet)",
        ),
        (
            {"state": "pending", "error": {"type": "RetryJob", "message": "", "spent": 12}},
            "waiting: it is next; its handler asked for a retry after 12 attempts (RetryJob)",
        ),
        (
            {"state": "pending", "due_in": 9, "error": {"type": "NoPlace", "message": "it waits for x", "spent": 1}},
            "due in 9 s; it waits for x",
        ),
        (
            {"state": "pending", "due_in": 8, "error": PARKED},
            "due in 8 s; attempt 4 of 6 is next, after BankError: no answer",
        ),
        ({"state": "pending", "workers": []}, "waiting: no worker serves this pipeline"),
        (
            {"state": "pending", "workers": [], "error": {"type": "RetryJob", "message": "not yet", "spent": 2}},
            "waiting: no worker serves this pipeline; its handler asked for a retry after 2 attempts (RetryJob: not yet)",  # noqa: E501
        ),
        ({"state": "pending"}, "waiting: it is next"),
        (
            {"state": "pending", "hindrances": [OPEN_FOR_NOW]},
            "waiting: breaker rank/rank_snapshot open until 14:05:30 UTC",
        ),
        (
            {
                "state": "pending",
                "due_in": 40,
                "workers": [],
                "hindrances": [OPEN_FOR_NOW],
                "error": {"type": "RetryJob", "message": "not yet", "spent": 1},
            },
            (
                "waiting: breaker rank/rank_snapshot open until 14:05:30 UTC, due in 40 s; "
                "its handler asked for a retry after 1 attempt (RetryJob: not yet)"
            ),
        ),
        (
            {"state": "pending", "hindrances": [FORCED_OPEN, {**OPEN_FOR_NOW, "what": "breaker text/brief open"}]},
            ("waiting: breaker rank/rank_snapshot open until it is reset, breaker text/brief open until 14:05:30 UTC"),
        ),
        (
            {"state": "pending", "workers": [], "hindrances": [OPEN_FOR_NOW]},
            "waiting: no worker serves this pipeline",
        ),
        (
            {"state": "pending", "ahead": 1234, "rescues": 2},
            "waiting: 1,234 are ahead of it, after 2 rescues from dead workers",
        ),
        ({"state": "pending", "ahead": 10_000, "is_ahead_capped": True}, "waiting: 10,000+ are ahead of it"),
        ({"state": "running"}, "running on host:1 for 250 ms"),
        ({"state": "running", "worker": ""}, "running on a worker for 250 ms"),
        (
            {"state": "running", "attempt": {"step": "process", "number": 4, "of": 6, "next_in": 8.0}},
            "running on host:1 for 250 ms: process attempt 4 of 6, next in 8 s",
        ),
        (
            {"state": "running", "attempt": {"step": "success", "number": 2, "of": 2, "next_in": 0.0}},
            "running on host:1 for 250 ms: success attempt 2 of 2",
        ),
        (
            {"state": "running", "cancel_requested_for": 3.0},
            "running on host:1 for 250 ms; its cancellation was requested 3 s ago",
        ),
        ({"state": "succeeded"}, "succeeded 30 s ago, on its first delivery"),
        ({"state": "succeeded", "deliveries": 3}, "succeeded 30 s ago, on delivery 3"),
        (
            {"state": "succeeded", "result_note": "not kept: it has 2 bytes; the limit is 1"},
            "succeeded 30 s ago, on its first delivery; its result is not kept: it has 2 bytes; the limit is 1",
        ),
        ({"state": "cancelled", "ended_ago": 200_000}, "cancelled 2 days ago before it started"),
        ({"state": "cancelled", "attempts_spent": 1}, "cancelled 30 s ago after 1 attempt"),
        ({"state": "cancelled", "attempts_spent": 2}, "cancelled 30 s ago after 2 attempts"),
        ({"state": "cancelled", "cancel_requested_for": 40.0}, "cancelled 30 s ago while it ran"),
        (
            {
                "state": "failed",
                "error": {"type": "KeyError", "message": "k", "category": "SYSTEM", "step": "success"},
                "dead_letter": "open",
            },
            "failed 30 s ago in success (SYSTEM) with KeyError: k; its dead letter needs a decision",
        ),
        (
            {"state": "failed", "dead_letter": "discarded"},
            "failed 30 s ago in process (SYSTEM) with an error; its dead letter is discarded",
        ),
        ({"state": "failed"}, "failed 30 s ago in process (SYSTEM) with an error"),
        (
            {"state": "failed", "dead_letter": "open", "hindrances": [OPEN_FOR_NOW]},
            (
                "failed 30 s ago in process (SYSTEM) with an error; its dead letter needs a decision; "
                "a replay would be blocked: breaker rank/rank_snapshot open until 14:05:30 UTC"
            ),
        ),
    ],
)
def test_why_a_transaction_is_where_it_is_takes_one_sentence(facts: dict[str, Any], sentence: str) -> None:
    assert explanation.sentence({**CALM, **facts}) == sentence


def test_a_failure_in_another_process_is_told_in_its_own_words() -> None:
    error = TransactionException("no such file")
    error.error_type, error.details = "ENOENT", "open x\nno such file\x00"
    assert failures.error_type(error) == "ENOENT"
    assert failures.traceback_of(error) == "open x\nno such file\ufffd"


def test_poison_is_a_failure_of_the_system_that_says_how_often_it_came_back() -> None:
    poison = PoisonError(POISON)
    assert (poison.category, poison.error_type) == (ExceptionType.SYSTEM, "PoisonTransaction")
    assert "delivered again 3 times" in str(poison)
