"""Answers that are not the provider's: kept ones and fallbacks, played with scripted answers.

They never hide a success that could be had: every attempt that is allowed is made first.
"""

from typing import Any

import pytest

from engines.core.errors import PolicyError
from providers.core.errors import (
    ProviderAuthError,
    ProviderBadRequestError,
    ProviderCancelledError,
    ProviderError,
    ProviderInternalError,
    ProviderRateLimitError,
    ProviderTimeoutError,
)
from providers.core.exchange import Outcome, Source
from providers.core.gate import Admission, Decision
from providers.core.policy import ProviderPolicy
from providers.core.steps import (
    Answered,
    Busy,
    Cached,
    Call,
    Claimed,
    FallBack,
    GiveUp,
    Keep,
    LookUp,
    Refuse,
    Replay,
    Settle,
    Spool,
    StandIn,
    StoreLost,
    Taken,
)
from tests.core.test_provider_calling import PASS, RETRY, SHUT, SLOW, TASK, Stage

CACHED = ProviderPolicy(retry=RETRY, cache_for=60, stale_for=600)
KEPT = Cached({"rank": 1}, 30.0)
ATTEMPTS = ["Admit", "Call", "Settle", "Sleep", "Admit", "Call", "Settle", "Sleep", "Admit", "Call", "Settle"]


def falling_back(*calls: Any, **script: Any) -> Stage:
    stage = Stage(*calls, **script)
    stage.fallback = {"rank": 0}
    return stage


def test_an_answer_is_useful_for_both_times_and_the_second_needs_the_first() -> None:
    assert [policy.useful_for for policy in (CACHED, ProviderPolicy(cache_for=0), ProviderPolicy())] == [660, 0, 0]
    with pytest.raises(PolicyError, match=r"ProviderPolicy\.stale_for must be null where cache_for is"):
        ProviderPolicy(stale_for=600)
    with pytest.raises(PolicyError, match="a number of seconds of at least 0 or null"):
        ProviderPolicy(cache_for=-1)


def test_a_young_answer_is_given_without_a_call() -> None:
    stage = Stage(found=[KEPT])
    result = stage.play(CACHED)
    assert stage.names() == ["LookUp", "StandIn"]
    assert stage.of(LookUp)[0].age == 60
    assert (result.ok, result.payload, result.source, result.age) == (True, {"rank": 1}, Source.CACHE, 30.0)
    assert (result.original_error, result.attempts) == (None, ())


def test_what_the_provider_answers_is_kept() -> None:
    stage = Stage(Answered({"rank": 2}))
    result = stage.play(CACHED)
    assert stage.names() == ["LookUp", "Admit", "Call", "Settle", "Keep"]
    assert (stage.of(Keep)[0].payload, result.source) == ({"rank": 2}, Source.PROVIDER)


def test_nothing_is_looked_up_or_kept_unless_the_policy_says_so() -> None:
    stage = Stage()
    stage.play()
    assert stage.names() == ["Admit", "Call", "Settle"]
    stage = Stage(SLOW, SLOW, SLOW)
    assert stage.play().reason_code == "timeout"
    assert stage.names() == ATTEMPTS


def test_answers_that_only_stand_in_are_not_looked_up_before_the_call() -> None:
    stage = Stage()
    stage.play(ProviderPolicy(cache_for=0, stale_for=600))
    assert stage.names() == ["Admit", "Call", "Settle", "Keep"]


def test_an_outcome_that_waits_in_the_journal_is_not_kept_for_others() -> None:
    stage = Stage()
    stage.is_store_lost = True
    assert stage.play(CACHED).ok
    assert stage.of(Keep) == []


def test_a_success_stays_one_if_the_caller_breaks_off_while_it_is_kept() -> None:
    stage = Stage(Answered({"rank": 2}))
    stage.stops_at = Keep
    result = stage.play(CACHED, is_guarded=True)
    assert (result.ok, stage.names()[-1]) == (True, "Keep")


def test_a_key_that_has_an_answer_keeps_it_whatever_was_kept_since() -> None:
    stage = Stage(claims=[Replay({"rank": 9})], found=[KEPT])
    result = stage.play(CACHED, is_guarded=True)
    assert (result.payload, result.replayed, stage.names()) == ({"rank": 9}, True, ["Claim"])


def test_a_key_without_an_answer_is_given_the_one_that_is_kept() -> None:
    stage = Stage(found=[KEPT])
    assert stage.play(CACHED, is_guarded=True).source is Source.CACHE
    assert stage.names() == ["Claim", "LookUp", "StandIn"]


def test_broken_off_at_a_kept_answer_it_lets_go_of_its_key() -> None:
    stage = Stage(found=[KEPT])
    stage.stops_at = StandIn
    assert stage.play(CACHED, is_guarded=True).reason_code == "cancelled"
    assert stage.names() == ["Claim", "LookUp", "StandIn", "Refuse"]


def test_a_retry_that_would_succeed_is_made_before_anything_stands_in() -> None:
    stage = falling_back(SLOW, SLOW, Answered({"rank": 2}), found=[None, KEPT])
    result = stage.play(CACHED)
    assert (result.payload, result.source) == ({"rank": 2}, Source.PROVIDER)
    assert (len(stage.of(Call)), stage.of(FallBack), len(stage.of(LookUp))) == (3, [], 1)


def test_an_old_answer_stands_in_only_after_all_attempts() -> None:
    stage = falling_back(SLOW, SLOW, SLOW, found=[None, Cached({"rank": 1}, 300.0)])
    result = stage.play(CACHED)
    assert stage.names() == ["LookUp", *ATTEMPTS, "LookUp", "StandIn"]
    assert [step.age for step in stage.of(LookUp)] == [60, 660]
    assert (result.ok, result.payload, result.source, result.age) == (True, {"rank": 1}, Source.STALE, 300.0)
    assert (result.original_error, result.error, len(result.attempts)) == (SLOW, None, 3)
    result.raise_for_failure()


@pytest.mark.parametrize("decision", [Decision.QUOTA, Decision.CIRCUIT, Decision.COOLING])
def test_an_old_answer_stands_in_for_a_call_that_is_refused(decision: Decision) -> None:
    stage = Stage(admissions=[Admission(decision, retry_after=4.0)], found=[None, KEPT])
    result = stage.play(CACHED)
    assert stage.names() == ["LookUp", "Admit", "Refuse", "LookUp", "StandIn"]
    assert (result.source, result.retry_after) == (Source.STALE, 4.0)


@pytest.mark.parametrize("error", [ProviderBadRequestError(), ProviderAuthError()])
def test_what_the_provider_says_of_a_request_is_not_contradicted_by_an_old_answer(error: ProviderError) -> None:
    stage = Stage(error, found=[None, KEPT])
    assert stage.play(CACHED).error is error
    assert len(stage.of(LookUp)) == 1
    stage = falling_back(error)
    assert stage.play(CACHED).source is Source.FALLBACK  # which knows the error, and may say nothing


@pytest.mark.parametrize("error", [ProviderBadRequestError(), ProviderInternalError()])
def test_a_fallback_answers_for_a_failure_for_good(error: ProviderError) -> None:
    stage = falling_back(error, takes=2.0)
    result = stage.play()
    assert stage.names() == ["Admit", "Call", "Settle", "FallBack", "StandIn"]
    assert (result.ok, result.payload, result.source) == (True, {"rank": 0}, Source.FALLBACK)
    assert (result.original_error, result.reason_code) == (error, None)
    [noted] = stage.of(StandIn)
    assert (noted.attempt, noted.error, noted.duration) == (1, error, 2.0)


def test_a_fallback_that_has_no_answer_leaves_the_error_in_place() -> None:
    class Silent(Stage):
        def answer(self, step: Any) -> Any:
            found = super().answer(step)
            return None if isinstance(step, FallBack) else found

    stage = Silent(SLOW, SLOW, SLOW, found=[None, None])
    stage.fallback = {}
    result = stage.play(CACHED)
    assert stage.names() == ["LookUp", *ATTEMPTS, "LookUp", "FallBack"]
    assert (result.error, result.ok) == (SLOW, False)


@pytest.mark.parametrize(("deadline", "has"), [(None, 30.0), (105.0, 5.0), (100.5, 1.0), (99.0, 1.0)])
def test_a_fallback_has_what_is_left_or_a_second(deadline: float | None, has: float) -> None:
    stage = falling_back(ProviderBadRequestError())
    stage.play(deadline=deadline)
    assert stage.of(FallBack)[0].timeout == has
    stage = falling_back(ProviderBadRequestError())
    stage.play(ProviderPolicy(timeout=None))
    assert stage.of(FallBack)[0].timeout is None


@pytest.mark.parametrize(
    "stage",
    [
        falling_back(admissions=[SHUT], found=[None, KEPT]),
        falling_back(ProviderRateLimitError(retry_after=9), found=[None, KEPT]),
        falling_back(admissions=[StoreLost()], found=[None, KEPT]),
        falling_back(claims=[StoreLost()], found=[None, KEPT]),
    ],
)
def test_a_task_that_comes_back_is_given_nothing_instead(stage: Stage) -> None:
    result = stage.play(CACHED, **TASK)
    assert (result.outcome, result.source) == (Outcome.RETRY, Source.PROVIDER)
    assert (stage.of(FallBack), stage.of(StandIn)) == ([], [])


def test_a_task_whose_failure_opens_the_breaker_comes_back_first() -> None:
    stage = falling_back(ProviderTimeoutError("slow"))  # of its own: it is told when to come back
    stage.decision = Decision.SHUT
    assert stage.play(**TASK).outcome is Outcome.RETRY
    assert stage.of(FallBack) == []


def test_a_task_for_which_something_stands_in_leaves_no_dead_letter() -> None:
    stage = falling_back(ProviderBadRequestError())
    result = stage.play(**TASK)
    assert (result.outcome, result.source) == (Outcome.SUCCESS, Source.FALLBACK)
    assert (stage.of(Settle)[0].outcome, stage.of(GiveUp)) == (Outcome.FAILED, [])


def test_a_task_for_which_nothing_stands_in_leaves_one() -> None:
    stage = Stage(ProviderBadRequestError())
    result = stage.play(CACHED, **TASK, attempts_made=1)
    assert stage.names() == ["Claim", "LookUp", "Admit", "Call", "Settle", "GiveUp"]
    [given_up] = stage.of(GiveUp)
    assert (given_up.attempt, given_up.attempts_made, result.outcome) == (2, 2, Outcome.DEAD_LETTER)
    stage = Stage(admissions=[Admission(Decision.QUOTA, retry_after=1.0)])
    assert stage.play(CACHED, **TASK).outcome is Outcome.DEAD_LETTER
    assert (stage.of(Refuse)[0].outcome, stage.of(GiveUp)[0].attempts_made) == (Outcome.FAILED, 0)


def test_a_dead_letter_that_could_not_be_kept_is_none() -> None:
    class Losing(Stage):
        def answer(self, step: Any) -> Any:
            return StoreLost() if isinstance(step, GiveUp) else super().answer(step)

    result = Losing(ProviderBadRequestError()).play(CACHED, **TASK)
    assert (result.outcome, result.is_kept) == (Outcome.RETRY, False)


def test_a_dead_letter_that_waits_in_the_journal_stays() -> None:
    stage = falling_back(ProviderBadRequestError())
    stage.is_store_lost = True
    result = stage.play(task_name="fetch", is_guarded=True)
    assert (result.outcome, stage.of(FallBack)) == (Outcome.DEAD_LETTER, [])
    assert stage.of(Spool)[0].settlement.outcome is Outcome.DEAD_LETTER


def test_broken_off_in_a_fallback_a_task_leaves_its_dead_letter() -> None:
    for task_name, last in (("fetch", "GiveUp"), (None, "FallBack")):
        stage = falling_back(ProviderBadRequestError())
        stage.stops_at = FallBack
        result = stage.play(task_name=task_name, is_guarded=True)
        assert (result.reason_code, stage.names()[-1]) == ("bad_request", last)


@pytest.mark.parametrize("claim", [Busy(9.0), Taken()])
def test_nothing_stands_in_for_a_request_that_is_anothers(claim: Any) -> None:
    stage = falling_back(claims=[claim], found=[KEPT])
    assert stage.play(CACHED, is_guarded=True, task_name="fetch").outcome is Outcome.DEAD_LETTER
    assert (stage.names(), stage.of(Refuse)[0].outcome) == (["Claim", "Refuse"], Outcome.DEAD_LETTER)
    stage = falling_back(SLOW, claims=[Claimed("token"), claim])
    assert stage.play(is_guarded=True, task_name="fetch").outcome is Outcome.DEAD_LETTER
    assert (stage.names()[-2:], stage.of(Refuse)[0].outcome) == (["Claim", "Refuse"], Outcome.DEAD_LETTER)


def test_nothing_stands_in_for_what_nobody_wants_any_more() -> None:
    stage = falling_back(ProviderCancelledError())
    assert stage.play().reason_code == "cancelled"
    stage = falling_back()
    stage.stops_at = Call
    assert stage.play().reason_code == "cancelled"
    assert stage.of(FallBack) == []


@pytest.mark.parametrize("lost", [{"claims": [StoreLost()]}, {"admissions": [StoreLost()]}])
def test_a_fallback_answers_while_the_database_is_away(lost: dict[str, Any]) -> None:
    stage = falling_back(**lost)
    stage.is_store_lost = True
    result = stage.play(is_guarded=True)
    assert (result.source, result.is_kept) == (Source.FALLBACK, False)
    assert result.original_error is not None
    assert result.original_error.reason_code == "dependency_unavailable"


def test_a_retry_that_the_breaker_refuses_stands_for_the_first_cause() -> None:
    stage = falling_back(SLOW, admissions=[PASS, SHUT])
    assert stage.play().original_error is SLOW
