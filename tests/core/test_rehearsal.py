"""A rehearsal plays recorded attempts under another policy: what is known is counted, what is not is never guessed."""

import sys
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engines.core import rehearsal_report
from engines.core.errors import ExceptionType, RetryLater, TransactionException
from engines.core.lifecycle import ANEW, Resumed, lifecycle
from engines.core.outcome import Failure, Later, Success, timed_out
from engines.core.policy import ConsumerPolicy, ProducerPolicy, RetryPolicy
from engines.core.presets import PRESETS
from engines.core.recorded import Record, Terms, Tried, record
from engines.core.rehearsal import Rehearsal, Unknown, Why, rehearse, rerun, total
from engines.core.steps import WORK, Call, Sleep, Stage

SYSTEM, BUSINESS, TIMEOUT = ExceptionType.SYSTEM, ExceptionType.BUSINESS, ExceptionType.TIMEOUT
OK = None


def policy(kind: Any = ConsumerPolicy, whole: float | None = None, *, handlers: Any = None, **retry: Any) -> Any:
    work = "process" if kind is ConsumerPolicy else "produce"
    steps = {work: {"retry": retry}} | {name: {"retry": body} for name, body in (handlers or {}).items()}
    return kind.from_dict({"loop": {"transaction_timeout": whole}, "steps": steps})


@dataclass
class Machine:
    """A worker that runs transactions as scripted, on a clock of its own, and records their attempts."""

    terms: Terms
    script: list[Any]  # (seconds, category or "asks" or "fatal") of each call
    overhead: float = 0.0
    has_handlers: bool = True
    now: float = 1000.0
    delivery: int = 1
    tried: list[Tried] = field(default_factory=list)

    def run(self) -> tuple[bool, str]:
        """Whether the transaction failed, and the message that it failed with."""
        begin, resumed = self.now, ANEW
        while True:
            outcome = self._deliver(begin, resumed)
            if not isinstance(outcome, Later):
                break
            self.now += outcome.seconds + self.overhead
            self.delivery += 1
            resumed = Resumed(outcome.spent)
        if isinstance(outcome, Success):
            return False, ""
        return True, str((outcome.origin or outcome).error)

    def _deliver(self, begin: float, resumed: Resumed) -> Any:
        steps, reply = lifecycle(self.terms.plan._replace(is_postponing=True), resumed), None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return end.value
            reply = None
            if isinstance(step, Call):
                reply = self._call(step, begin)
            elif isinstance(step, Sleep):
                left = self._left(begin, is_bounded=step.is_bounded)
                self.now += min(step.seconds, max(0.0, left)) + self.overhead
                if left < step.seconds:
                    reply = self._expired()

    def _call(self, call: Call, begin: float) -> Any:
        if call.stage not in WORK and not self.has_handlers:
            return Success(None)
        seconds, end = self.script.pop(0) if self.script else (0.1, OK)
        started, left = self.now, self._left(begin, is_bounded=call.is_bounded and call.stage is not Stage.EXCEPTION)
        limit = min(left, call.retry.timeout or left)
        if seconds > limit:
            seconds = max(0.0, limit)
            outcome: Any = self._expired() if limit == left else timed_out(f"{call.stage.value} attempt", limit)
        elif end is OK:
            outcome = Success(None)
        else:
            error: Any = RetryLater("soon") if end == "asks" else TransactionException("", SYSTEM)
            if end == "asks":
                error.after = 0.25
            elif end == "fatal":
                error.is_fatal = True
            else:
                error.category = end
            outcome = Failure(error)
        self.now += seconds + self.overhead
        failed = isinstance(outcome, Failure)
        category, message = (outcome.error.category, str(outcome.error)) if failed else (None, "")
        row = (self.delivery, call.stage, call.attempt + 1, started, seconds, category, self.terms, message)
        self.tried.append(Tried(*row))
        return outcome

    def _left(self, begin: float, *, is_bounded: bool) -> float:
        is_limited = self.terms.timeout is not None and is_bounded
        return self.terms.timeout - (self.now - begin) if is_limited else float("inf")  # type: ignore[operator]

    def _expired(self) -> Failure:
        return timed_out("the transaction", self.terms.timeout or 0.0, is_expired=True)


def ran(under: Any, *script: Any, **options: Any) -> Record:
    machine = Machine(Terms.of(under), list(script), **options)
    is_failed, message = machine.run()
    found = record("t-1", is_failed=is_failed, message=message, attempts=machine.tried)
    assert found is not None
    return found


RETRIES = [
    RetryPolicy(max_attempts=attempts, timeout=limit, backoff=backoff, backoff_cap=cap)
    for attempts, limit, backoff, cap in product([1, 2, 4], [None, 1.0, 4.0], [0.0, 0.5, 2.0], [0.0, 3.0])
]
calls = st.tuples(
    st.sampled_from([0.1, 0.9, 3.0, 9.0]), st.sampled_from([OK, SYSTEM, SYSTEM, BUSINESS, TIMEOUT, "asks", "fatal"])
)


@st.composite
def policies(draw: Any) -> Any:
    kind, whole, park_after, work, success, exception = draw(
        st.tuples(
            st.sampled_from([ConsumerPolicy, ProducerPolicy]),
            st.sampled_from([None, 5.0, 20.0]),
            st.sampled_from([None, 0.0, 1.0]),
            *[st.sampled_from(RETRIES)] * 3,
        )
    )
    handlers = {"success": success.to_dict(), "exception": exception.to_dict()}
    return replace(policy(kind, whole, handlers=handlers, **work.to_dict()), park_after=park_after)


@settings(max_examples=200, deadline=None)
@given(policies(), st.lists(calls, max_size=10), st.sampled_from([0.0, 0.01]), st.booleans())
def test_rehearsing_the_policy_that_was_in_force_reproduces_the_record(
    under: Any, script: list[Any], overhead: float, has_handlers: Any
) -> None:
    past = ran(under, *script, overhead=overhead, has_handlers=has_handlers)
    again = rerun(past, Terms.of(under))
    assert again is not None
    assert (again.attempts, again.is_failed) == (len(past.attempts), past.is_failed)
    assert (again.unknown, again.cut, again.handlers) == (None, 0, 0)
    assert again.waited == pytest.approx(past.waited)
    told = rehearse([past, past], Terms.of(under))
    assert (told.transactions, told.changed) == (2, 0)
    assert told.recorded == told.rehearsed


@settings(max_examples=100, deadline=None)
@given(policies(), policies(), st.lists(calls, max_size=10))
def test_any_policy_can_be_rehearsed_and_only_records_are_counted(before: Any, after: Any, script: list[Any]) -> None:
    past = ran(before, *script)
    again = rerun(past, Terms.of(after))
    if type(before) is not type(after):
        assert again is None
        return
    assert again is not None
    # One attempt beyond the record can be reached, and its outcome is unknown.
    assert 1 <= again.attempts <= len(past.attempts) + (again.unknown is not None)
    assert (again.is_failed is None) is (again.unknown is not None)


FAILS = [(1.0, SYSTEM)] * 3


@pytest.mark.parametrize(
    ("before", "script", "after", "attempts", "is_failed", "unknown"),
    [
        # More attempts than were made: the next one is unknown.
        ({"max_attempts": 3}, FAILS, {"max_attempts": 4}, 4, None, Unknown(Stage.PROCESS, 4, Why.FURTHER)),
        # Fewer: what was made later is not reached.
        ({"max_attempts": 3}, [*FAILS[:2], (1.0, OK)], {"max_attempts": 2}, 2, True, None),
        ({"max_attempts": 3}, [*FAILS[:2], (1.0, OK)], {"max_attempts": 5}, 3, False, None),
        # The task's own decision stands.
        ({}, [(1.0, BUSINESS)], {"max_attempts": 5}, 1, True, None),
        ({"max_attempts": 2}, [(1.0, "fatal")], {"max_attempts": 5}, 1, True, None),
        # A shorter limit than an attempt took cuts it; one that is long enough changes nothing.
        ({}, [(3.0, OK)], {"timeout": 2}, 1, True, None),
        ({}, [(3.0, OK)], {"timeout": 3}, 1, False, None),
        ({}, [(3.0, OK)], {"timeout": 2, "max_attempts": 2}, 2, None, Unknown(Stage.PROCESS, 2, Why.FURTHER)),
        ({"max_attempts": 2}, [(3.0, SYSTEM), (1.0, OK)], {"timeout": 2, "max_attempts": 2}, 2, False, None),
        # An attempt that timed out is unknown with a longer limit, and known with a shorter one.
        ({"timeout": 2}, [(9.0, OK)], {"timeout": 5}, 1, None, Unknown(Stage.PROCESS, 1, Why.LONGER)),
        ({"timeout": 2}, [(9.0, OK)], {}, 1, None, Unknown(Stage.PROCESS, 1, Why.LONGER)),
        ({"timeout": 2}, [(9.0, OK)], {"timeout": 1}, 1, True, None),
        # A TIMEOUT that the task raised is none of a limit's.
        ({"timeout": 5}, [(1.0, TIMEOUT)], {"timeout": 9}, 1, True, None),
    ],
)
def test_what_is_known_of_an_attempt(
    before: dict[str, Any], script: list[Any], after: dict[str, Any], attempts: int, is_failed: Any, unknown: Any
) -> None:
    again = rerun(ran(policy(**before), *script, has_handlers=False), Terms.of(policy(**after)))
    assert again is not None
    assert (again.attempts, again.is_failed, again.unknown) == (attempts, is_failed, unknown)


@pytest.mark.parametrize(
    ("before", "script", "after", "expected"),
    [
        # 3 attempts of 2 s with 4 s of waiting: 14 s. Less time ends it in a wait or in an attempt.
        (None, [(2.0, SYSTEM), (2.0, SYSTEM), (2.0, OK)], 3, (1, True, None, 1.0)),
        (None, [(2.0, SYSTEM), (2.0, SYSTEM), (2.0, OK)], 7, (2, True, None, 4.0)),
        (None, [(2.0, SYSTEM), (2.0, SYSTEM), (2.0, OK)], 14, (3, False, None, 8.0)),
        # It ran out of time in an attempt: with more time its end is unknown, with less it is the same.
        (7, [(2.0, SYSTEM), (2.0, SYSTEM), (2.0, OK)], 7, (2, True, None, 4.0)),
        (7, [(2.0, SYSTEM), (2.0, SYSTEM), (2.0, OK)], 5, (1, True, None, 3.0)),
        (7, [(2.0, SYSTEM), (2.0, SYSTEM), (2.0, OK)], 20, (2, None, Why.LONGER, 4.0)),
        (7, [(2.0, SYSTEM), (2.0, SYSTEM), (2.0, OK)], None, (2, None, Why.LONGER, 4.0)),
        # It ran out of time while it waited.
        (4, [(2.0, SYSTEM), (2.0, OK)], 4, (1, True, None, 2.0)),
        (4, [(2.0, SYSTEM), (2.0, OK)], 3, (1, True, None, 1.0)),
        (4, [(2.0, SYSTEM), (2.0, OK)], 30, (2, None, Why.FURTHER, 4.0)),
    ],
)
def test_what_is_known_of_a_transactions_time(before: Any, script: list[Any], after: Any, expected: Any) -> None:
    retry = {"max_attempts": 3, "backoff": 4.0, "backoff_multiplier": 1.0}
    past = ran(policy(whole=before, **retry), *script, has_handlers=False)
    again = rerun(past, Terms.of(policy(whole=after, **retry)))
    assert again is not None
    assert (again.attempts, again.is_failed, again.unknown and again.unknown.why, again.waited) == expected
    assert before != after or past.waited == again.waited


def test_an_attempt_that_a_shorter_limit_cuts_leaves_more_of_the_transactions_time() -> None:
    past = ran(policy(whole=6, max_attempts=2), (5.0, SYSTEM), (9.0, OK), has_handlers=False)
    assert [one.tried.cut_by for one in past.attempts] == [None, "expired"]
    again = rerun(past, Terms.of(policy(whole=6, max_attempts=2, timeout=3)))
    assert again is not None
    # The second began at 5 s and was cut at 6 s; from 3 s on it would have had 3 s.
    assert (again.attempts, again.unknown) == (2, Unknown(Stage.PROCESS, 2, Why.LONGER))


def test_a_wait_that_the_handler_asked_for_stays_within_the_ceiling() -> None:
    before = policy(max_attempts=2, backoff=9.0)
    past = ran(before, (1.0, "asks"), (1.0, OK))
    assert past.attempts[0].is_asked
    assert past.waited == pytest.approx(0.25)
    longer = rerun(past, Terms.of(policy(max_attempts=2, backoff=30.0)))
    assert longer is not None
    assert longer.waited == pytest.approx(0.25)
    lower = rerun(past, Terms.of(replace(before, retry_after_ceiling=0.1)))
    assert lower is not None
    assert lower.waited == pytest.approx(0.1)


def test_handlers_have_attempts_of_their_own() -> None:
    before = policy(handlers={"success": {"max_attempts": 2}, "exception": {"max_attempts": 2, "timeout": 1}})
    past = ran(before, (1.0, OK), (1.0, SYSTEM), (1.0, SYSTEM), (9.0, OK), (0.5, OK))
    assert [one.tried.stage.value for one in past.attempts] == ["process", *["success"] * 2, *["exception"] * 2]
    more = rerun(past, Terms.of(policy(handlers={"success": {"max_attempts": 3}})))
    assert more is not None
    assert more.unknown == Unknown(Stage.SUCCESS, 3, Why.FURTHER)
    # However an exception handler ends, the transaction has failed.
    patient = rerun(past, Terms.of(policy(handlers={"exception": {"max_attempts": 2}, "success": {"max_attempts": 2}})))
    assert patient is not None
    assert (patient.is_failed, patient.handlers, patient.unknown) == (True, 1, None)
    # Whether there is an exception handler that never ran, nobody knows.
    fewer = rerun(ran(policy(max_attempts=2), (1.0, SYSTEM), (1.0, OK), has_handlers=False), Terms.of(policy()))
    assert fewer is not None
    assert (fewer.attempts, fewer.is_failed, fewer.handlers) == (1, True, 1)


def test_a_handler_that_ran_out_of_the_transactions_time_is_unknown_with_another_one() -> None:
    row = Tried(1, Stage.PROCESS, 1, 0.0, 1.0, SYSTEM, Terms.of(policy(whole=5)))
    cut = row._replace(stage=Stage.EXCEPTION, started=1.0, duration=4.0, category=TIMEOUT)
    cut = cut._replace(message="the transaction timed out after 5 s")
    past = record("t", is_failed=True, message="no", attempts=[row, cut])
    assert past is not None
    assert [rerun(past, Terms.of(policy(whole=seconds))).handlers for seconds in (5, 9)] == [0, 1]  # type: ignore[union-attr]


ROW = Tried(1, Stage.PROCESS, 1, 0.0, 1.0, SYSTEM, Terms.of(policy(max_attempts=3)))


@pytest.mark.parametrize(
    ("is_failed", "attempts"),
    [
        (True, []),
        (True, [ROW._replace(number=2)]),
        (True, [ROW, ROW]),
        (True, [ROW._replace(stage=Stage.SUCCESS)]),
        (True, [ROW, ROW._replace(stage=Stage.PRODUCE)]),
        (True, [ROW._replace(category=None)]),
        (False, [ROW]),
        (False, [ROW._replace(category=None), ROW._replace(stage=Stage.EXCEPTION)]),
    ],
)
def test_what_is_not_one_whole_run_is_left_out(is_failed: Any, attempts: list[Tried]) -> None:
    assert record("t", is_failed=is_failed, message="", attempts=attempts) is None
    told = rehearse([None], ROW.terms)
    assert (told.transactions, told.left_out) == (0, 1)


def test_a_transaction_whose_policy_allowed_fewer_attempts_later_is_tried_again_under_one_that_allows_more() -> None:
    past = record("t", is_failed=True, message="no attempts left: 1 of 1 were made", attempts=[ROW])
    assert past is not None
    again = rerun(past, Terms.of(policy(max_attempts=2)))
    assert again is not None
    assert again.unknown == Unknown(Stage.PROCESS, 2, Why.FURTHER)


def test_the_figures_say_what_is_known_and_what_is_not() -> None:
    before, after = policy(max_attempts=3, backoff=1.0), policy(max_attempts=4, backoff=2.0)
    dead, fine = ran(before, *FAILS, has_handlers=False), ran(before, (1.0, OK), has_handlers=False)
    one = rehearse([dead, dead, fine, None], Terms.of(after))
    assert (one.transactions, one.left_out, one.changed, one.maybe_saved, one.at_risk) == (3, 1, 2, 2, 0)
    assert [tuple(figure) for figure in rehearsal_report.figures(one)] == [
        ("Attempts", "7", "at least 9", "at least 2 more", "neither"),
        ("Dead letters", "2", "0 to 2", "0 to 2 fewer", "neither"),
        ("Waited between attempts", "6 s", "at least 28 s", "at least 22 s longer", "neither"),
    ]
    assert rehearsal_report.sentences(one) == ["2 transactions would have been tried a fourth time: outcome unknown."]
    assert one.examples == {"dead_letters": (), "unknown": ("t-1", "t-1")}
    assert Rehearsal.from_dict(one.to_dict()) == replace(one, examples={})
    both = total([one, one])
    assert (both.transactions, both.rehearsed.attempts, both.unknown[0][1]) == (6, 18, 4)
    assert len(both.examples["unknown"]) == 3


@pytest.mark.parametrize(
    ("before", "script", "after", "changes", "sentence"),
    [
        ({}, [(3.0, OK)], {"timeout": 2}, ["no change", "1 more", "no change"],
         "1 transaction that succeeded would have become a dead letter."),
        ({}, [(3.0, OK)], {"timeout": 2}, ["no change", "1 more", "no change"],
         "1 attempt would have been cut by a time limit."),
        ({}, [(3.0, OK)], {"timeout": 2, "max_attempts": 2}, ["at least 1 more", "0 to 1 more", "no change, or more"],
         "1 transaction would have been tried a second time: outcome unknown."),
        ({"timeout": 2}, [(9.0, OK)], {}, ["no change, or more", "0 to 1 fewer", "no change, or more"],
         "1 attempt that timed out would have had longer: outcome unknown."),
        ({"max_attempts": 2, "backoff": 5.0}, FAILS[:2], {}, ["1 fewer", "no change", "5 s shorter"],
         "1 transaction would have ended the same, with other attempts or waits."),
        ({}, [(1.0, OK)], {"max_attempts": 2}, ["no change"] * 3, "No transaction would have gone differently."),
        ({"max_attempts": 12}, [(1.0, SYSTEM)] * 12, {"max_attempts": 13},
         ["at least 1 more", "0 to 1 fewer", "no change, or more"],
         "1 transaction would have been tried 13 times: outcome unknown."),
        ({"max_attempts": 2}, [(1.0, SYSTEM), (9.0, OK)], {"timeout": 5},
         ["1 fewer", "1 more", "no change"],
         "1 exception handler would have run, if the task has one: outcome unknown."),
    ],
)  # fmt: skip
def test_changes_are_told_in_words(
    before: dict[str, Any], script: list[Any], after: dict[str, Any], changes: list[str], sentence: str
) -> None:
    told = rehearse([ran(policy(**before), *script, has_handlers=False)], Terms.of(policy(**after)))
    assert [figure.change for figure in rehearsal_report.figures(told)] == changes
    assert sentence in rehearsal_report.sentences(told)


def test_waits_that_never_end_are_finite_numbers() -> None:
    past = ran(policy(max_attempts=3), *FAILS, has_handlers=False)
    told = rehearse([past], Terms.of(policy(max_attempts=3, backoff=1.5e308)))
    assert total([told, told]).rehearsed.waited == told.rehearsed.waited == sys.float_info.max
    assert rehearsal_report.figures(told)[2].change == "forever longer"


def test_handlers_and_mixed_changes_are_told_as_well() -> None:
    unknown = (
        (Unknown(Stage.SUCCESS, 2, Why.FURTHER), 2),
        (Unknown(Stage.SUCCESS, 1, Why.LONGER), 1),
    )
    told = Rehearsal(transactions=9, maybe_saved=2, at_risk=1, unknown=unknown, left_out=2)
    told = replace(told, recorded=replace(told.recorded, dead_letters=2, attempts=12))
    told = replace(told, rehearsed=replace(told.rehearsed, attempts=10))
    assert rehearsal_report.sentences(told) == [
        "2 success handlers would have been tried a second time: outcome unknown.",
        "1 attempt of a success handler that timed out would have had longer: outcome unknown.",
    ]
    assert [one.change for one in rehearsal_report.figures(told)[:2]] == ["at most 2 fewer", "2 fewer to 1 more"]
    better = replace(told, maybe_saved=0, at_risk=0, unknown=())
    assert rehearsal_report.figures(better)[1].way == "better"
    assert "nothing to rehearse with" in rehearsal_report.sentences(Rehearsal())[0]
    assert rehearsal_report.unrehearsed(["loop.batch.size", "steps.process.retry.timeout"]) == ["loop.batch.size"]


def test_the_sample_is_told_with_its_size_and_with_what_it_leaves_open() -> None:
    pipelines = [{"name": name, "is_capped": name == "b"} for name in "ab"]
    told = Rehearsal(transactions=1200, left_out=2)
    result = {
        "total": told.to_dict(),
        "pipelines": pipelines,
        "are_all_pipelines": False,
        "unrehearsed": ["loop.limit"],
    }
    assert rehearsal_report.size(result) == (
        "Rehearsed with the newest 1,200 transactions of 2 pipelines from the last 24 hours."
    )
    assert rehearsal_report.notes(result) == [
        "No transaction would have gone differently.",
        "2 transactions left out: their records are not one whole run, such as after a stop.",
        "Only the first 2 pipelines were rehearsed.",
        "Not rehearsed, since no record tells what it would do: loop.limit.",
    ]
    one = {**result, "total": replace(told, left_out=1).to_dict(), "pipelines": pipelines[:1]}
    assert rehearsal_report.size(one).startswith("Rehearsed with 1,200 transactions of a from")
    assert "1 transaction left out: its record is not one whole run, such as after a stop." in rehearsal_report.notes(
        one
    )
    plain = {**one, "total": replace(told, left_out=0).to_dict(), "are_all_pipelines": True, "unrehearsed": []}
    assert rehearsal_report.notes(plain) == ["No transaction would have gone differently."]


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_presets_are_valid_policies_of_both_kinds(kind: str) -> None:
    whole = ConsumerPolicy if kind == "consumer" else ProducerPolicy
    for preset in PRESETS:
        body: dict[str, Any] = {}
        for path, value in preset.body(kind).items():
            *way, name = path.split(".")
            inner = body
            for part in way:
                inner = inner.setdefault(part, {})
            inner[name] = value
        assert whole.from_dict(body) != whole()
    assert len({preset.name for preset in PRESETS}) == 3
