"""One transaction: its stages, retries and endings, as tables of scripted outcomes."""

import math

import pytest
from hypothesis import given, strategies as st

from engines.core.attempt import AttemptRecord
from engines.core.errors import (
    ExceptionType,
    FetchException,
    FetchTimeoutException,
    RetryLater,
    TransactionException,
)
from engines.core.lifecycle import Plan, Resumed, attempts, classify, classify_fetch, lifecycle, plan_of
from engines.core.outcome import CUT, Cancelled, Cut, Failure, Later, Outcome, Success, timed_out
from engines.core.policy import ConsumerPolicy, ProducerPolicy, RetryPolicy
from engines.core.steps import Call, Enter, Leave, Sleep, Stage
from tests.broken_errors import Hollow, MuteError
from tests.core.playing import Play, play

ok = Success("value")
system = Failure(TransactionException("broken", ExceptionType.SYSTEM))
late = Failure(TransactionException("late", ExceptionType.TIMEOUT))
business = Failure(TransactionException("no", ExceptionType.BUSINESS))
expired = timed_out("the transaction", 1.0, is_expired=True)

THRICE = RetryPolicy(max_attempts=3, backoff=1.0)
ONCE = RetryPolicy()


def live(
    *outcomes: Outcome, work: RetryPolicy = ONCE, success: RetryPolicy = ONCE, exception: RetryPolicy = ONCE
) -> Play:
    return play(lifecycle(Plan(Stage.PROCESS, work, success, exception)), outcomes, Call)


def stages(played: Play) -> list[Stage]:
    return [call.stage for call in played.of(Call)]


def test_a_value_goes_to_the_success_handler() -> None:
    played = live(ok, Success(None))
    assert stages(played) == [Stage.PROCESS, Stage.SUCCESS]
    assert played.of(Call)[1].argument == "value"
    assert played.result == ok


def test_a_success_that_nobody_handles_is_the_end() -> None:
    plan = Plan(Stage.PROCESS, ONCE, ONCE, ONCE, is_observed=False, is_success_final=True)
    assert play(lifecycle(plan), [ok], Call).names() == ["Call"]
    assert stages(play(lifecycle(plan), [system, ok], Call)) == [Stage.PROCESS, Stage.EXCEPTION]


def test_a_business_failure_goes_straight_to_the_exception_handler() -> None:
    played = live(business, ok, work=THRICE)
    assert stages(played) == [Stage.PROCESS, Stage.EXCEPTION]
    assert played.of(Call)[1].argument is business.error
    assert played.result == business


@pytest.mark.parametrize("failure", [system, late])
def test_a_system_or_timeout_failure_is_tried_again_until_attempts_run_out(failure: Failure) -> None:
    played = live(failure, failure, failure, ok, work=THRICE)
    assert stages(played) == [Stage.PROCESS] * 3 + [Stage.EXCEPTION]
    assert [call.attempt for call in played.of(Call)] == [0, 1, 2, 0]
    assert [sleep.seconds for sleep in played.of(Sleep)] == [1.0, 2.0]
    assert played.result == failure


def test_a_retry_that_succeeds_is_a_success() -> None:
    assert live(system, ok, ok, work=THRICE).result == ok


def test_the_success_handler_has_its_own_retries_not_the_works() -> None:
    played = live(ok, system, system, ok, work=THRICE, success=RetryPolicy(max_attempts=2))
    assert stages(played) == [Stage.PROCESS, Stage.SUCCESS, Stage.SUCCESS, Stage.EXCEPTION]
    assert played.result == system


def test_a_success_handler_that_fails_for_good_calls_the_exception_handler_once() -> None:
    played = live(ok, system, ok)
    assert stages(played).count(Stage.EXCEPTION) == 1
    assert played.of(Call)[-1].argument is system.error


def test_an_exception_handler_that_fails_for_good_ends_it_and_keeps_both_failures() -> None:
    played = live(business, system, system, exception=RetryPolicy(max_attempts=2))
    assert stages(played) == [Stage.PROCESS, Stage.EXCEPTION, Stage.EXCEPTION]
    assert played.result.error is system.error
    assert played.result.origin == business


def test_a_business_failure_of_the_exception_handler_is_not_tried_again() -> None:
    assert stages(live(system, business, exception=THRICE)) == [Stage.PROCESS, Stage.EXCEPTION]


def test_an_expired_transaction_is_tried_no_more_and_its_exception_handler_has_its_own_time() -> None:
    played = live(expired, ok, work=THRICE)
    assert stages(played) == [Stage.PROCESS, Stage.EXCEPTION]
    assert [call.is_bounded for call in played.of(Call)] == [True, False]
    assert played.result == expired


def test_an_exception_handler_cut_by_the_transactions_time_is_not_run_again() -> None:
    played = live(business, expired, exception=THRICE)
    assert stages(played) == [Stage.PROCESS, Stage.EXCEPTION]
    assert played.result.is_expired
    assert played.result.origin == business


def test_a_success_handler_cut_by_the_transactions_time_leads_to_the_exception_handler() -> None:
    assert stages(live(ok, expired, ok, success=THRICE)) == [Stage.PROCESS, Stage.SUCCESS, Stage.EXCEPTION]


@pytest.mark.parametrize("outcomes", [[CUT], [ok, CUT], [business, CUT], [system, CUT]])
def test_what_is_cut_calls_no_further_handler(outcomes: list[Outcome]) -> None:
    played = live(*outcomes, work=RetryPolicy(max_attempts=2))
    assert isinstance(played.result, Cut)
    assert len(played.of(Call)) == len(outcomes)


def test_a_wait_that_outlasts_the_transaction_ends_it_and_names_what_went_before() -> None:
    ending = timed_out("the transaction", 1.0, is_expired=True)
    played = play(attempts(Stage.PROCESS, THRICE), [system, ending], Call, Sleep)
    assert played.result is ending
    assert ending.error.__cause__ is system.error


def test_a_wait_that_is_cut_ends_it() -> None:
    assert play(attempts(Stage.PROCESS, THRICE), [system, CUT], Call, Sleep).result is CUT


def test_every_stage_is_entered_and_left_around_all_its_attempts() -> None:
    played = live(system, ok, ok, work=THRICE)
    assert played.names() == ["Enter", "Call", "Sleep", "Call", "Leave", "Enter", "Call", "Leave"]
    assert [step.outcome for step in played.of(Leave)] == [ok, ok]
    assert [step.stage for step in played.of(Enter)] == [Stage.PROCESS, Stage.SUCCESS]


outcome = st.sampled_from([ok, system, late, business, expired, CUT])
retry = st.builds(RetryPolicy, max_attempts=st.integers(1, 4))


@given(st.lists(outcome, min_size=20, max_size=20), retry, retry, retry)
def test_whatever_happens_exactly_one_handler_has_the_last_word(
    outcomes: list[Outcome], work: RetryPolicy, success: RetryPolicy, exception: RetryPolicy
) -> None:
    played = live(*outcomes, work=work, success=success, exception=exception)
    entered = [step.stage for step in played.of(Enter)]
    assert entered[0] is Stage.PROCESS
    assert entered.count(Stage.EXCEPTION) <= 1
    assert entered.count(Stage.SUCCESS) <= 1
    if isinstance(played.result, Success):
        assert entered == [Stage.PROCESS, Stage.SUCCESS]
    elif isinstance(played.result, Failure):
        assert entered[-1] is Stage.EXCEPTION
    for stage, policy in ((Stage.PROCESS, work), (Stage.SUCCESS, success), (Stage.EXCEPTION, exception)):
        assert stages(played).count(stage) <= policy.max_attempts


@given(st.lists(outcome, min_size=20, max_size=20), retry, retry, retry)
def test_where_nobody_watches_the_same_is_done_without_marks_of_a_success(
    outcomes: list[Outcome], work: RetryPolicy, success: RetryPolicy, exception: RetryPolicy
) -> None:
    plan = Plan(Stage.PROCESS, work, success, exception, is_observed=False)
    unseen, seen = (
        play(lifecycle(plan), outcomes, Call),
        live(*outcomes, work=work, success=success, exception=exception),
    )
    assert unseen.of(Call, Sleep) == seen.of(Call, Sleep)
    assert unseen.result == seen.result
    if isinstance(unseen.result, Success):
        assert unseen.of(Enter, Leave) == []


WORK = Call(Stage.PROCESS, 0, ONCE, None)
CONSUMED = Call(Stage.SUCCESS, 0, ONCE, None)
PRODUCED = Call(Stage.SUCCESS, 0, ONCE, None, is_system=True)


def test_any_other_exception_is_wrapped_as_system_and_kept_as_the_cause() -> None:
    original = KeyError()
    failure = classify(original, WORK, "t1")
    assert failure.error.category is ExceptionType.SYSTEM
    assert failure.error.__cause__ is original
    assert str(failure.error) == "KeyError"
    assert failure.error.transaction_id == "t1"


def test_a_transaction_exception_keeps_its_category() -> None:
    raised = TransactionException("no", ExceptionType.BUSINESS)
    assert classify(raised, WORK).error is raised


class Refused(TransactionException):
    """A decision of the task, by its class."""

    category = ExceptionType.BUSINESS


class RefusedOrder(Refused):
    """The same with a constructor of its own."""

    def __init__(self, order: int) -> None:
        super().__init__(f"order {order} is refused")


class RefusedSilently(Refused):
    """The same without its parent's constructor."""

    def __init__(self, order: int) -> None:
        self.order = order


class RefusedByWord(TransactionException):
    """A category in the word of the documents."""

    category = "BUSINESS"  # type: ignore[assignment]


@pytest.mark.parametrize(
    "raised",
    [
        Refused("no"),
        RefusedOrder(7),
        RefusedSilently(7),
        RefusedByWord("no"),
        TransactionException(ExceptionType.BUSINESS),
        TransactionException("no", ExceptionType.BUSINESS),
        TransactionException(category=ExceptionType.BUSINESS),
    ],
)
def test_a_category_counts_however_it_is_given(raised: TransactionException) -> None:
    failure = classify(raised, WORK)
    assert failure.error is raised
    assert failure.is_final


def test_a_category_that_is_given_counts_more_than_that_of_the_class() -> None:
    assert Refused("no", ExceptionType.SYSTEM).category is ExceptionType.SYSTEM
    assert not classify(Refused("no", ExceptionType.TIMEOUT), WORK).is_final


def test_a_category_in_the_place_of_the_message_is_no_message() -> None:
    raised = TransactionException(ExceptionType.BUSINESS, transaction_id="t1")
    assert (raised.message, str(raised), raised.transaction_id) == ("", "", "t1")


def test_a_decision_of_a_consumers_success_handler_is_not_tried_again() -> None:
    raised = TransactionException("no", ExceptionType.BUSINESS)
    assert classify(raised, CONSUMED).error is raised
    played = live(ok, business, ok, success=THRICE)
    assert stages(played) == [Stage.PROCESS, Stage.SUCCESS, Stage.EXCEPTION]
    assert played.result == business


def test_only_a_producers_success_handler_is_the_systems_whatever_it_raises() -> None:
    for stage in (Stage.PROCESS, Stage.PRODUCE):
        played = play(lifecycle(Plan(stage, ONCE, ONCE, ONCE)), [ok, system, ok], Call)
        assert [call.is_system for call in played.of(Call)] == [False, stage is Stage.PRODUCE, False]


@pytest.mark.parametrize(
    ("category", "call"),
    [
        (ExceptionType.BUSINESS, PRODUCED),
        (ExceptionType.TIMEOUT, PRODUCED),
        (ExceptionType.TIMEOUT, CONSUMED),
    ],
)
def test_what_else_a_success_handler_raises_is_system(category: ExceptionType, call: Call) -> None:
    raised = TransactionException("no", category)
    failure = classify(raised, call)
    assert failure.error.category is ExceptionType.SYSTEM
    assert failure.error.__cause__ is raised
    assert not failure.is_final


def test_a_timeout_that_the_task_raises_itself_is_system() -> None:
    assert classify(TimeoutError("mine"), WORK).error.category is ExceptionType.SYSTEM


def test_errors_of_a_fetch_become_fetch_exceptions() -> None:
    original = OSError("gone")
    failure = classify_fetch(original).error
    assert isinstance(failure, FetchException)
    assert failure.__cause__ is original
    told = FetchTimeoutException("late")
    assert classify_fetch(told).error is told
    assert str(classify_fetch(KeyError()).error) == "KeyError"


def test_a_connectors_own_timeout_is_a_fetch_timeout() -> None:
    original = TimeoutError("read timed out")
    failure = classify_fetch(original).error
    assert isinstance(failure, FetchTimeoutException)
    assert (str(failure), failure.__cause__) == ("read timed out", original)


def test_a_last_attempt_that_outlasts_the_transaction_names_the_failure_before_it() -> None:
    ending = timed_out("the transaction", 1.0, is_expired=True)
    assert play(attempts(Stage.PROCESS, THRICE), [system, ending], Call).result is ending
    assert ending.error.__cause__ is system.error


def test_an_error_that_cannot_be_asked_is_told_by_its_name() -> None:
    assert str(classify(MuteError(), WORK).error) == "MuteError"
    assert classify(Hollow(), CONSUMED).error.category is ExceptionType.SYSTEM


def asking(after: float | None = None) -> Failure:
    error = RetryLater("not yet")
    error.after = after
    return Failure(error)


POSTPONING = Plan(Stage.PROCESS, THRICE, ONCE, ONCE, retry_after_ceiling=60, is_postponing=True)


@pytest.mark.parametrize(
    ("after", "seconds"), [(None, 1.0), (0, 0), (7.5, 7.5), (-3, 0), (1e9, 60), (float("inf"), 60)]
)
def test_one_that_asks_for_a_later_attempt_is_put_back_within_bounds(after: float | None, seconds: float) -> None:
    failure = asking(after)
    played = play(lifecycle(POSTPONING), [failure], Call)
    assert played.result == Later(seconds, 1, failure, of=3)
    assert stages(played) == [Stage.PROCESS]


def test_attempts_before_it_was_put_back_count() -> None:
    played = play(lifecycle(POSTPONING, Resumed(1)), [system, asking(5), ok], Call)
    assert [call.attempt for call in played.of(Call)] == [1, 2, 0]
    assert stages(played)[-1] is Stage.EXCEPTION


def test_a_policy_that_allows_fewer_attempts_by_now_allows_no_further_one() -> None:
    played = play(lifecycle(Plan(Stage.PROCESS, ONCE, ONCE, ONCE), Resumed(4, LAST)), [ok], Call)
    assert stages(played) == [Stage.EXCEPTION]
    assert str(played.result.error) == "no attempts left: 4 of 1 were made"
    assert played.result.error.__cause__ is system.error


PARKING = Plan(Stage.PROCESS, THRICE, THRICE, THRICE, is_postponing=True, park_after=1.0)
LAST = AttemptRecord(Stage.PROCESS, 2, 3, 0.0, 0.0, system)


def test_a_wait_that_is_longer_than_the_policy_allows_in_a_slot_is_parked() -> None:
    played = play(lifecycle(PARKING), [system, late], Call)
    assert [sleep.seconds for sleep in played.of(Sleep)] == [1.0]
    assert played.result == Later(2.0, 2, late, of=3, is_parked=True)
    assert stages(played) == [Stage.PROCESS] * 2


@pytest.mark.parametrize("plan", [PARKING._replace(is_postponing=False), PARKING._replace(park_after=2.0)])
def test_otherwise_it_keeps_its_slot(plan: Plan) -> None:
    played = play(lifecycle(plan), [system, system, ok, ok], Call)
    assert [sleep.seconds for sleep in played.of(Sleep)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("outcomes", "stage"),
    [([ok, system, system, ok], Stage.SUCCESS), ([business, system, system, ok], Stage.EXCEPTION)],
)
def test_handlers_of_an_end_wait_in_their_slot(outcomes: list[Outcome], stage: Stage) -> None:
    played = play(lifecycle(PARKING), outcomes, Call)
    assert stages(played) == [Stage.PROCESS, stage, stage, stage]
    assert [sleep.seconds for sleep in played.of(Sleep)] == [1.0, 2.0]


def test_nothing_begins_whose_end_was_requested() -> None:
    played = play(lifecycle(PARKING, is_cancelled=True), [], Call)
    assert (played.steps, played.result) == ([], Cancelled())


def test_a_failure_whose_end_was_requested_is_the_last_and_is_handled_once() -> None:
    unwanted = system._replace(is_unwanted=True)
    played = play(lifecycle(PARKING), [unwanted, ok], Call)
    assert (stages(played), played.result) == ([Stage.PROCESS, Stage.EXCEPTION], unwanted)


def test_what_was_parked_goes_on_with_its_next_attempt() -> None:
    played = play(lifecycle(PARKING, Resumed(2, LAST)), [system, ok], Call)
    assert [(call.stage, call.attempt) for call in played.of(Call)] == [(Stage.PROCESS, 2), (Stage.EXCEPTION, 0)]


def test_one_whose_time_ended_while_it_was_parked_is_not_tried_again() -> None:
    ending = timed_out("the transaction", 1.0, is_expired=True)

    def answer(step: object) -> object:
        return ending if isinstance(step, Sleep) else ok

    played = play(lifecycle(PARKING, Resumed(2, LAST)), answer)
    assert stages(played) == [Stage.EXCEPTION]
    assert played.result is ending
    assert ending.error.__cause__ is system.error


@pytest.mark.parametrize(
    ("values", "park_after"),
    [({}, 1.0), ({"park_after": 0}, 0.0), ({"park_after": None}, math.inf), ({"loop": {"limit": 5}}, math.inf)],
)
@pytest.mark.parametrize("kind", [ConsumerPolicy, ProducerPolicy])
def test_a_loop_with_a_limit_parks_nothing(
    kind: type[ConsumerPolicy | ProducerPolicy], values: dict[str, object], park_after: float
) -> None:
    assert plan_of(kind.from_dict(values), is_postponing=True).park_after == park_after


def test_where_it_cannot_be_put_back_it_waits_in_its_slot() -> None:
    played = live(asking(5), ok, ok, work=THRICE)
    assert [sleep.seconds for sleep in played.of(Sleep)] == [5]
    assert played.result == ok


def test_what_no_attempt_can_help_is_tried_once() -> None:
    hopeless = TransactionException("nobody knows how")
    hopeless.is_fatal = True
    assert stages(live(Failure(hopeless), ok, work=THRICE)) == [Stage.PROCESS, Stage.EXCEPTION]


def test_the_failure_of_an_exception_handler_has_the_original_one_below_it() -> None:
    raised, wrapping = OSError("no mail"), TransactionException("no mail")
    wrapping.__cause__ = raised
    played = play(lifecycle(Plan(Stage.PROCESS, ONCE, ONCE, ONCE)), [system, Failure(wrapping)], Call)
    assert played.result.error is wrapping
    assert raised.__context__ is system.error


def test_errors_that_go_round_in_a_circle_end_somewhere() -> None:
    one, other = TransactionException("one"), TransactionException("other")
    one.__cause__, other.__cause__ = other, one
    played = play(lifecycle(Plan(Stage.PROCESS, ONCE, ONCE, ONCE)), [system, Failure(one)], Call)
    assert played.result.error is one
