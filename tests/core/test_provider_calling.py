"""The rules of one execution, played with scripted answers: no clock, no thread, no database."""

from typing import TYPE_CHECKING, Any

import pytest

from providers.core import calling, exchange
from providers.core.breaker import Permit
from providers.core.calling import Execution
from providers.core.errors import (
    ProviderBadRequestError,
    ProviderConnectionError,
    ProviderDependencyError,
    ProviderError,
    ProviderRateLimitError,
    ProviderTimeoutError,
)
from providers.core.exchange import (
    CallRequest,
    Outcome,
    ProviderExecutionContext,
    ProviderExecutionResult,
    Who,
)
from providers.core.gate import NOTHING, Admission, Decision, Reservation
from providers.core.policy import ProviderPolicy
from providers.core.retry import RetryPolicy
from providers.core.steps import (
    Admit,
    Answered,
    Busy,
    Call,
    Claim,
    Claimed,
    Failed,
    FallBack,
    GiveUp,
    Keep,
    LookUp,
    Refuse,
    Replay,
    Settle,
    Sleep,
    Spool,
    StandIn,
    Step,
    StoppedError,
    StoreLost,
    Taken,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

RETRY = RetryPolicy(max_attempts=3, base_delay_seconds=1, max_delay_seconds=8, jitter_ratio=0)
PASS = Admission(Decision.ADMITTED, Permit(0))
PAID = Admission(Decision.ADMITTED, Permit(0), 60.0, 1)
SHUT = Admission(Decision.CIRCUIT, retry_after=4.0)
SLOW = ProviderTimeoutError("slow")


class Stage:
    """Answers steps: what was scripted, or what goes on. Sleeping moves the clock, and so does a call."""

    def __init__(
        self, *calls: Any, admissions: Any = (), claims: Any = (), found: Any = (), takes: float = 0.0
    ) -> None:
        self.now = 100.0
        self.steps: list[Step] = []
        self.takes = takes
        self.lasts: dict[type[Step], float] = {}  # so long the database takes for an answer
        self.is_store_lost = self.is_local = False
        self.lost = 0  # so many settlements from now on
        self.stops_at: type[Step] | None = None
        self.decision = Decision.RETRY  # about a retry that is wanted
        self.scripts: dict[type, Iterator[Any]] = {Call: iter(calls), Admit: iter(admissions), Claim: iter(claims)}
        self.scripts[LookUp] = iter(found)
        self.fallback: Any = None

    def answer(self, step: Step) -> Any:
        self.steps.append(step)
        self.now += self.lasts.get(type(step), 0.0)
        match step:
            case Sleep(seconds):
                self.now += seconds
                return None
            case Settle() | Refuse() | StandIn() | GiveUp() if self.is_store_lost or self.lost > 0:
                self.lost -= 1
                return StoreLost(is_local=self.is_local)
            case Settle():
                return self.decision if step.wants_retry else Decision.ENDED
            case Call():
                self.now += self.takes
                found = next(self.scripts[Call], Answered({}))
                return Failed(found) if isinstance(found, ProviderError) else found
            case Admit():
                return next(self.scripts[Admit], PASS)
            case Claim():
                return next(self.scripts[Claim], Claimed("token"))
            case LookUp():
                return next(self.scripts[LookUp], None)
            case FallBack():
                self.now += self.takes
                return self.fallback
        return None

    def play(self, policy: ProviderPolicy | None = None, **about: Any) -> ProviderExecutionResult:
        is_guarded = about.pop("is_guarded", False)
        context = ProviderExecutionContext("c", **about)
        chosen = policy or ProviderPolicy(retry=RETRY)
        has_fallback = self.fallback is not None
        execution = Execution(chosen, context, lambda: self.now, is_guarded=is_guarded, has_fallback=has_fallback)
        steps = calling.execute(execution)
        reply = None
        while True:
            try:
                step = steps.send(reply)
                if self.stops_at and isinstance(step, self.stops_at):
                    self.stops_at = None
                    self.steps.append(step)
                    step = steps.throw(StoppedError())
            except StopIteration as end:
                result: ProviderExecutionResult = end.value
                return result
            reply = self.answer(step)

    def names(self) -> list[str]:
        return [type(step).__name__ for step in self.steps]

    def of(self, kind: type) -> list[Any]:
        return [step for step in self.steps if isinstance(step, kind)]


def test_each_attempt_passes_the_gate_and_waits_in_between() -> None:
    stage = Stage(SLOW, SLOW)
    result = stage.play()
    assert stage.names() == ["Admit", "Call", "Settle", "Sleep"] * 2 + ["Admit", "Call", "Settle"]
    assert [step.seconds for step in stage.of(Sleep)] == [1, 2]
    assert result.ok
    assert [step.cost for step in stage.of(Admit)] == [1, 0, 0]


def test_a_failure_for_good_ends_it() -> None:
    stage = Stage(ProviderBadRequestError())
    assert stage.play().reason_code == "bad_request"
    assert stage.names() == ["Admit", "Call", "Settle"]


def test_a_retry_that_is_refused_ends_with_the_original_reason() -> None:
    stage = Stage(SLOW, admissions=[PASS, SHUT])
    result = stage.play()
    assert (result.reason_code, result.error) == ("timeout", SLOW)
    [refusal] = stage.of(Refuse)
    assert (refusal.attempt, refusal.error.reason_code, refusal.outcome) == (2, "circuit_open", Outcome.FAILED)


@pytest.mark.parametrize(
    ("decision", "reason"),
    [(Decision.QUOTA, "quota_exhausted"), (Decision.CIRCUIT, "circuit_open"), (Decision.COOLING, "rate_limited")],
)
def test_a_refused_call_is_not_made(decision: Decision, reason: str) -> None:
    stage = Stage(admissions=[Admission(decision, retry_after=4.0)])
    result = stage.play()
    assert (stage.names(), result.reason_code, result.retry_after) == (["Admit", "Refuse"], reason, 4.0)


def test_whoever_comes_back_is_told_to_and_its_refusal_has_failed() -> None:
    stage = Stage(admissions=[SHUT])
    assert stage.play(may_return=True, task_name="t").outcome is Outcome.RETRY
    assert stage.of(Refuse)[0].outcome is Outcome.FAILED
    stage = Stage(ProviderRateLimitError(retry_after=9))
    result = stage.play(may_return=True, task_name="t")
    assert (result.outcome, result.retry_after, stage.of(Sleep)) == (Outcome.RETRY, 9, [])


def test_a_tasks_failure_for_good_is_a_dead_letter() -> None:
    stage = Stage(ProviderBadRequestError())
    assert stage.play(task_name="t").outcome is Outcome.DEAD_LETTER
    assert stage.of(Settle)[0].outcome is Outcome.DEAD_LETTER


def test_the_longer_of_both_waits_is_kept_and_capped() -> None:
    stage = Stage(ProviderRateLimitError(retry_after=5), ProviderRateLimitError(retry_after=0.5))
    assert stage.play().ok
    assert [step.seconds for step in stage.of(Sleep)] == [5, 2]
    assert [step.cooldown for step in stage.of(Settle)] == [5, 0.5, None]
    stage = Stage(ProviderRateLimitError(retry_after=10_000))
    stage.play()
    assert stage.of(Sleep)[0].seconds == 300


def test_a_wait_that_would_cross_the_deadline_is_not_begun() -> None:
    stage = Stage(SLOW, SLOW)
    result = stage.play(deadline=102.5)
    assert (result.reason_code, len(result.attempts), [step.seconds for step in stage.of(Sleep)]) == ("timeout", 2, [1])


def test_a_call_has_the_time_that_is_left() -> None:
    stage = Stage(takes=1)
    stage.play(ProviderPolicy(timeout=5), deadline=102.0)
    assert stage.of(Call)[0].timeout == 2
    stage = Stage()
    stage.play(ProviderPolicy(timeout=None))
    assert stage.of(Call)[0].timeout is None


def test_nothing_is_called_after_the_deadline() -> None:
    stage = Stage()
    result = stage.play(deadline=100.0)
    assert (stage.names(), result.reason_code) == (["Refuse"], "timeout")


def test_a_call_has_the_time_that_is_left_once_it_is_let_through() -> None:
    stage = Stage()
    stage.lasts[Admit] = 4.0
    stage.play(deadline=110.0)
    assert stage.of(Call)[0].timeout == 6


@pytest.mark.parametrize("quota_per_attempt", [True, False])
def test_a_call_that_is_let_through_too_late_gives_back_what_it_holds(*, quota_per_attempt: bool) -> None:
    stage = Stage(SLOW, admissions=[PAID])
    stage.lasts[Admit] = 4.0
    policy = ProviderPolicy(retry=RETRY, quota_per_attempt=quota_per_attempt)
    result = stage.play(policy, deadline=104.0, task_name="fetch")
    assert (stage.names(), result.reason_code, result.attempts) == (["Admit", "Settle"], "timeout", ())
    [settled] = stage.of(Settle)
    assert (settled.verdict, settled.outcome, settled.duration) == ("neutral", Outcome.DEAD_LETTER, 0.0)
    assert (settled.refund, settled.wants_retry) == (Reservation(1, 60.0), False)


@pytest.mark.parametrize(("quota_per_attempt", "refund"), [(True, Reservation(1, 60.0)), (False, NOTHING)])
def test_a_retry_that_is_let_through_too_late_ends_with_the_original_reason(
    *, quota_per_attempt: bool, refund: Reservation
) -> None:
    failed = ProviderDependencyError("down")
    stage = Stage(failed, admissions=[PAID, PAID if quota_per_attempt else PASS])
    stage.lasts[Admit] = 2.0
    result = stage.play(ProviderPolicy(retry=RETRY, quota_per_attempt=quota_per_attempt), deadline=105.0)
    assert stage.names() == ["Admit", "Call", "Settle", "Sleep", "Admit", "Settle"]
    assert (result.error, len(result.attempts), stage.of(Settle)[1].refund) == (failed, 1, refund)


def test_a_wait_that_reaches_the_deadline_by_now_is_not_begun_either() -> None:
    stage = Stage(SLOW)
    stage.lasts[Settle] = 5.0
    result = stage.play(deadline=106.0, is_guarded=True)
    assert (stage.names(), result.error) == (["Claim", "Admit", "Call", "Settle", "Refuse"], SLOW)
    [refused] = stage.of(Refuse)
    assert (refused.attempt, refused.ends_execution) == (2, True)


def test_a_spent_quota_is_not_waited_for() -> None:
    stage = Stage(admissions=[Admission(Decision.QUOTA, retry_after=1.0)])
    result = stage.play(may_return=True, task_name="t")
    assert (result.outcome, result.reason_code) == (Outcome.DEAD_LETTER, "quota_exhausted")


@pytest.mark.parametrize(
    ("deadline", "timeout", "lasts"), [(None, 30.0, 31.0), (190.0, 30.0, 90.0), (190.0, 99.0, 100.0), (None, None, 1.0)]
)
def test_a_request_that_is_tried_again_says_for_how_long_it_may_be_under_way(
    deadline: float | None, timeout: float | None, lasts: float
) -> None:
    stage = Stage(SLOW)
    stage.play(ProviderPolicy(retry=RETRY, timeout=timeout), deadline=deadline)
    assert stage.of(Settle)[0].lasts == lasts


def test_every_attempt_says_its_status() -> None:
    stage = Stage(ProviderTimeoutError(http_status=504), Answered({}, 201))
    result = stage.play()
    assert [attempt.http_status for attempt in result.attempts] == [504, 201]
    assert [step.http_status for step in stage.of(Settle)] == [504, 201]


def test_a_success_is_never_thrown_away() -> None:
    result = Stage(Answered({"rank": 1}), takes=50).play(deadline=101.0)
    assert (result.ok, result.payload, result.duration_ms) == (True, {"rank": 1}, 50_000)


def test_what_never_left_is_refunded_at_the_end_and_only_then() -> None:
    unreachable = ProviderConnectionError(never_left=True)
    stage = Stage(*[unreachable] * 3, admissions=[PAID])
    stage.play()
    held = Reservation(1, 60.0)
    assert [(step.refund, step.refunds_retry) for step in stage.of(Settle)] == [(held, False)] * 3
    stage = Stage(SLOW, unreachable, admissions=[PAID, PASS, SHUT])
    stage.play()
    assert [step.refund for step in (*stage.of(Settle), *stage.of(Refuse))] == [NOTHING, NOTHING, NOTHING]
    stage = Stage(unreachable, admissions=[PAID, SHUT])
    stage.play()
    assert stage.of(Refuse)[0].refund == held


def test_each_billed_attempt_is_refunded_for_itself() -> None:
    unreachable = ProviderConnectionError(never_left=True)
    stage = Stage(SLOW, unreachable, admissions=[PAID, PAID, SHUT])
    stage.play(ProviderPolicy(retry=RETRY, quota_per_attempt=True, cost=1))
    assert [step.refund.amount for step in stage.of(Settle)] == [0, 1]
    assert stage.of(Refuse)[0].refund == NOTHING


def test_a_suppressed_retry_says_so() -> None:
    class Stingy(Stage):
        def answer(self, step: Step) -> Any:
            found = super().answer(step)
            return Decision.SUPPRESSED if isinstance(step, Settle) else found

    result = Stingy(SLOW).play()
    assert (result.retry_suppressed, result.outcome, result.reason_code) == (True, Outcome.FAILED, "timeout")


def test_a_success_of_before_is_given_again() -> None:
    stage = Stage(claims=[Replay({"rank": 1})])
    result = stage.play(is_guarded=True)
    assert (result.ok, result.replayed, result.payload, stage.names()) == (True, True, {"rank": 1}, ["Claim"])


def test_a_key_of_another_request_is_refused() -> None:
    stage = Stage(claims=[Taken()])
    assert stage.play(is_guarded=True).reason_code == "bad_request"
    assert stage.names() == ["Claim", "Refuse"]


def test_a_second_one_waits_for_the_first_or_is_refused() -> None:
    stage = Stage(claims=[Busy(9.0), Replay({})])
    assert stage.play(ProviderPolicy(idempotency_wait=1), is_guarded=True).replayed
    stage = Stage(claims=[Busy(9.0)] * 99)
    result = stage.play(ProviderPolicy(idempotency_wait=1.1), is_guarded=True)
    assert (result.reason_code, result.retry_after, len(stage.of(Sleep))) == ("dependency_unavailable", 9.0, 5)
    stage = Stage(claims=[Busy(9.0)])
    stage.play(ProviderPolicy(idempotency_wait=60), is_guarded=True, deadline=100.1)
    assert stage.of(Sleep) == []


def test_a_claimed_request_goes_on() -> None:
    stage = Stage()
    assert stage.play(is_guarded=True).ok
    assert stage.names() == ["Claim", "Admit", "Call", "Settle"]


AGAIN = ["Claim", "Admit", "Call", "Settle", "Sleep", "Claim"]


def test_a_claimed_request_is_claimed_anew_before_it_is_tried_again() -> None:
    stage = Stage(SLOW)
    assert stage.play(is_guarded=True).ok
    assert stage.names() == [*AGAIN, "Admit", "Call", "Settle"]


def test_what_another_has_made_while_its_lease_was_over_is_not_tried_again() -> None:
    stage = Stage(SLOW, claims=[Claimed("token"), Replay({"rank": 1})])
    result = stage.play(ProviderPolicy(retry=RETRY, cache_for=60), is_guarded=True)
    assert (result.payload, result.replayed, len(result.attempts)) == ({"rank": 1}, True, 1)
    assert stage.of(Keep) == []


@pytest.mark.parametrize(
    ("found", "reason"), [(Busy(9.0), "dependency_unavailable"), (Taken(), "bad_request"), (StoreLost(), "timeout")]
)
def test_what_another_makes_while_its_lease_was_over_is_not_tried_again(found: Any, reason: str) -> None:
    stage = Stage(SLOW, claims=[Claimed("token"), found])
    result = stage.play(is_guarded=True)
    assert (result.reason_code, result.is_kept) == (reason, not isinstance(found, StoreLost))
    assert stage.names() == (AGAIN if isinstance(found, StoreLost) else [*AGAIN, "Refuse"])


def test_without_the_database_nothing_is_called() -> None:
    assert Stage(claims=[StoreLost()]).play(is_guarded=True).reason_code == "dependency_unavailable"
    assert Stage(admissions=[StoreLost()]).play().reason_code == "dependency_unavailable"
    assert Stage(SLOW, admissions=[PASS, StoreLost()]).play().reason_code == "timeout"


def lost(stage: Stage) -> Stage:
    """The database goes away after the gate was asked."""
    stage.is_store_lost = True
    return stage


def test_an_end_that_could_not_be_written_down_is_none_for_whoever_comes_back() -> None:
    for stage in (Stage(ProviderBadRequestError()), Stage(SLOW, admissions=[PASS, StoreLost()])):
        assert lost(stage).play(may_return=True, task_name="t").outcome is Outcome.RETRY
    late = lost(Stage()).play(may_return=True, task_name="t", deadline=1.0)
    assert (late.outcome, late.reason_code) == (Outcome.RETRY, "timeout")
    assert lost(Stage(ProviderBadRequestError())).play(task_name="t").outcome is Outcome.DEAD_LETTER


@pytest.mark.parametrize(
    "stage", [Stage(claims=[Busy(7.0)]), Stage(claims=[StoreLost()]), Stage(admissions=[StoreLost()])]
)
def test_what_says_nothing_of_the_provider_is_waited_for(stage: Stage) -> None:
    result = stage.play(may_return=True, task_name="t", is_guarded=True)
    assert (result.outcome, result.reason_code) == (Outcome.RETRY, "dependency_unavailable")


@pytest.mark.parametrize(
    ("patience", "outcome"), [(None, Outcome.RETRY), (4.1, Outcome.RETRY), (4.0, Outcome.DEAD_LETTER)]
)
def test_a_pause_is_waited_for_by_whoever_has_the_patience(patience: float | None, outcome: Outcome) -> None:
    result = Stage(admissions=[SHUT]).play(may_return=True, task_name="t", patience=patience)
    assert (result.outcome, result.reason_code) == (outcome, "circuit_open")


def test_an_outcome_is_settled_again_while_the_database_is_away_for_a_moment() -> None:
    stage = Stage()
    stage.lost = 2
    result = stage.play()
    assert stage.names() == ["Admit", "Call", "Settle", "Sleep", "Settle", "Sleep", "Settle"]
    assert [step.is_repeat for step in stage.of(Settle)] == [False, True, True]
    assert (result.ok, result.is_kept) == (True, True)


def test_an_outcome_that_the_database_does_not_take_goes_into_the_journal() -> None:
    stage = Stage(Answered({"rank": 1}))
    stage.is_store_lost = True
    result = stage.play(is_guarded=True)
    [spooled] = stage.of(Spool)
    assert spooled.settlement.payload == {"rank": 1}
    assert (result.ok, result.payload, result.is_kept) == (True, {"rank": 1}, False)
    assert len(stage.of(Sleep)) == len(calling.SETTLES_AGAIN_AFTER)


def test_no_time_beyond_the_deadline_is_spent_on_settling() -> None:
    stage = Stage()
    stage.is_store_lost = True
    stage.play(deadline=101.0)
    assert sum(step.seconds for step in stage.of(Sleep)) < 1.0
    assert len(stage.of(Spool)) == 1


@pytest.mark.parametrize(("is_guarded", "spools"), [(True, 1), (False, 0)])
def test_what_was_called_without_the_database_is_spooled_for_its_key_alone(*, is_guarded: bool, spools: int) -> None:
    stage = Stage()
    stage.is_store_lost = stage.is_local = True
    assert stage.play(is_guarded=is_guarded).ok
    assert (len(stage.of(Spool)), len(stage.of(Sleep))) == (spools, 0)


def test_a_failure_of_a_task_that_comes_back_is_spooled_as_one() -> None:
    stage = Stage(ProviderBadRequestError())
    stage.is_store_lost = True
    result = stage.play(task_name="fetch", may_return=True, is_guarded=True)
    assert result.outcome is Outcome.RETRY
    [spooled] = stage.of(Spool)
    assert (spooled.settlement.outcome, spooled.settlement.wants_retry) == (Outcome.RETRY, False)


def test_a_call_that_is_broken_off_is_settled_as_cancelled() -> None:
    stage = Stage()
    stage.stops_at = Call
    result = stage.play(is_guarded=True, task_name="fetch")
    [settled] = stage.of(Settle)
    assert (settled.error.reason_code, settled.verdict, settled.outcome) == ("cancelled", "neutral", Outcome.FAILED)
    assert (result.reason_code, result.outcome) == ("cancelled", Outcome.FAILED)


def test_broken_off_before_or_between_attempts_it_lets_go_of_its_key() -> None:
    for kind, names in ((Admit, ["Claim", "Admit", "Refuse"]), (Sleep, ["Claim", "Admit", "Call", "Settle", "Sleep"])):
        stage = Stage(SLOW)
        stage.stops_at = kind
        assert stage.play(is_guarded=True).reason_code == "cancelled"
        assert stage.names()[: len(names)] == names
        [refused] = stage.of(Refuse)
        assert refused.error.reason_code == "cancelled"


def test_broken_off_without_a_key_there_is_nothing_to_let_go_of() -> None:
    stage = Stage(SLOW)
    stage.stops_at = Sleep
    assert stage.play().reason_code == "cancelled"
    assert stage.of(Refuse) == []


def test_broken_off_without_a_key_it_gives_back_what_was_reserved_for_a_request_that_never_left() -> None:
    unreachable = ProviderConnectionError(never_left=True)
    stage = Stage(unreachable, admissions=[PAID])
    stage.stops_at = Sleep
    assert stage.play().reason_code == "cancelled"
    [refused] = stage.of(Refuse)
    assert (refused.refund, refused.outcome, refused.ends_execution) == (Reservation(1, 60.0), Outcome.FAILED, True)


@pytest.mark.parametrize("stops_at", [Settle, Refuse, Sleep])
@pytest.mark.parametrize("script", [[], [ProviderConnectionError(never_left=True)]], ids=["success", "failure"])
def test_broken_off_anywhere_a_reservation_is_given_back_once(stops_at: type[Step], script: list[Any]) -> None:
    stage = Stage(*script, admissions=[PAID, SHUT])
    stage.stops_at = stops_at
    stage.play()
    spooled = [step.settlement for step in stage.of(Spool)]
    kept = [step for step in (*stage.of(Refuse), *spooled) if step.refund.is_held]
    assert len(kept) == len(script)


def test_broken_off_while_the_database_is_away_the_outcome_is_spooled() -> None:
    stage = Stage(Answered({"rank": 1}))
    stage.is_store_lost, stage.stops_at = True, Sleep
    stage.play(is_guarded=True)
    assert stage.names() == ["Claim", "Admit", "Call", "Settle", "Sleep", "Spool"]
    assert stage.of(Spool)[0].settlement.payload == {"rank": 1}


def test_broken_off_in_a_call_while_the_database_is_away_it_does_not_wait_for_it() -> None:
    stage = Stage()
    stage.is_store_lost, stage.stops_at = True, Call
    stage.play()
    assert stage.names() == ["Admit", "Call", "Settle", "Spool"]


TASK: dict[str, Any] = {"task_name": "fetch", "may_return": True, "is_guarded": True}


def test_a_pause_that_comes_with_any_retryable_status_is_waited_for_by_coming_back() -> None:
    stage = Stage(ProviderDependencyError("busy", http_status=503, retry_after=60.0))
    result = stage.play(**TASK, patience=600.0)
    assert (result.outcome, result.retry_after) == (Outcome.RETRY, 60.0)
    assert stage.of(Settle)[0].cooldown == 60.0
    assert stage.of(Sleep) == []


def test_a_pause_is_the_end_once_the_attempts_or_the_patience_are_used_up() -> None:
    used_up: list[dict[str, Any]] = [{"attempts_made": 2, "patience": 600.0}, {"patience": 59.0}]
    for about in used_up:
        stage = Stage(*[ProviderDependencyError("busy", http_status=503, retry_after=60.0)] * 3)
        stage.decision = Decision.ENDED
        assert stage.play(**TASK, **about, deadline=110.0).outcome is Outcome.DEAD_LETTER


def test_a_gate_that_is_shut_uses_no_attempt() -> None:
    stage = Stage(admissions=[SHUT])
    result = stage.play(**TASK, attempts_made=3)
    assert (result.outcome, result.reason_code, result.retry_after) == (Outcome.RETRY, "circuit_open", 4.0)


def test_attempts_count_over_all_invocations_of_a_task() -> None:
    stage = Stage(SLOW)
    stage.play(**TASK, attempts_made=1)
    assert [step.attempt for step in stage.of(Settle)] == [2, 3]
    assert [step.cost for step in stage.of(Admit)] == [1, 0]


def test_whoever_makes_the_breaker_open_comes_back_like_those_after() -> None:
    stage = Stage(ProviderTimeoutError("slow"))
    stage.decision = Decision.SHUT
    result = stage.play(**TASK)
    assert (result.outcome, result.reason_code, result.retry_after) == (Outcome.RETRY, "timeout", 30.0)
    assert result.attempts[0].outcome is Outcome.RETRY


def test_it_does_not_come_back_without_the_patience_for_it() -> None:
    stage = Stage(ProviderTimeoutError("slow"))
    stage.decision = Decision.SHUT
    assert stage.play(**TASK, patience=5.0).outcome is Outcome.DEAD_LETTER
    assert not stage.of(Settle)[0].returns_if_shut


def test_a_call_has_a_correlation_id_of_its_own_if_none_is_given() -> None:
    first, second = ProviderExecutionContext(), ProviderExecutionContext()
    assert first.correlation_id != second.correlation_id


def test_a_refusal_says_that_it_is_for_all_that_share_the_account() -> None:
    result = Stage(admissions=[SHUT._replace(account=SHUT)]).play()
    assert str(result.error) == "the breaker is open, for all that share the account"


@pytest.mark.parametrize(("left", "seconds"), [(None, 5.0), (1000.0, 5.0), (4.0, 2.0), (0.1, 0.2), (-1.0, 0.2)])
def test_the_database_has_half_of_what_a_call_has_left(
    monkeypatch: pytest.MonkeyPatch, left: float | None, seconds: float
) -> None:
    monkeypatch.setattr(exchange, "MOST", 5.0)  # other tests let it have more
    assert exchange.time_to_ask(left) == seconds


@pytest.mark.parametrize(
    ("key", "deduplicate", "is_guarded"), [(None, False, False), ("order-1", False, True), (None, True, True)]
)
def test_a_request_is_guarded_by_its_callers_key_or_by_its_content(
    key: str | None,
    deduplicate: bool,  # noqa: FBT001
    is_guarded: bool,  # noqa: FBT001
) -> None:
    context, policy = ProviderExecutionContext(idempotency_key=key), ProviderPolicy(deduplicate=deduplicate)
    who = Who("t", "rank", "rank_snapshot")
    request = CallRequest(who=who, operation="x", key="k", fingerprint="f", policy=policy, context=context)
    assert request.is_guarded is is_guarded
