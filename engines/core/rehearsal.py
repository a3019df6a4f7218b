"""What a policy would have changed: recorded attempts are played through the lifecycle again, under other terms.

An attempt that was made is taken to end as it did, unless a limit is now shorter than it took. What was never seen (a
further attempt, the end of an attempt that a limit cut and that would now have longer) is unknown, and never guessed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from engines.core.backoff import LONGEST
from engines.core.errors import RetryLater, TransactionException
from engines.core.lifecycle import lifecycle
from engines.core.outcome import DONE, TRANSACTION, Failure, Outcome, Success, timed_out
from engines.core.recorded import Cause, Past, Record, Terms, left_of
from engines.core.steps import Call, Sleep, Stage, Step

EXAMPLES = 3


class Why(StrEnum):
    """Why the outcome of an attempt is unknown."""

    FURTHER = "further"  # it was never made
    LONGER = "longer"  # it was cut, and would have had longer


class Unknown(NamedTuple):
    stage: Stage
    number: int
    why: Why


class Rerun(NamedTuple):
    """A transaction under other terms, as far as that is known."""

    attempts: int  # the one whose outcome is unknown included
    waited: float
    is_failed: bool | None  # None: unknown
    unknown: Unknown | None = None
    cut: int = 0  # attempts that a shorter limit would have ended
    handlers: int = 0  # exception handlers that would have run, and never did


def rerun(past: Record, terms: Terms) -> Rerun | None:
    """Play a transaction again; None if the policy is of another kind."""
    if past.attempts[0].tried.stage is not terms.plan.work:
        return None
    replay, steps, reply = _Replay(past, terms), lifecycle(terms.plan), None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return replay.result(is_failed=isinstance(end.value, Failure))
        reply = replay.answer(step)
        if isinstance(reply, Unknown):
            steps.close()
            return replay.result(is_failed=None, unknown=reply)


class _Replay:
    """Answers the steps of a lifecycle from what was recorded."""

    def __init__(self, past: Record, terms: Terms) -> None:
        self.past, self.terms = past, terms
        self.pasts = {(one.tried.stage, one.tried.number): one for one in past.attempts}
        self.at = past.attempts[0]  # the attempt that was made last
        self.shift = 0.0  # by how much later than recorded things happen
        self.attempts = self.cut = self.handlers = 0
        self.waited = 0.0

    def result(self, *, is_failed: bool | None, unknown: Unknown | None = None) -> Rerun:
        return Rerun(self.attempts, self.waited, is_failed, unknown, self.cut, self.handlers)

    def answer(self, step: Step) -> Outcome | Unknown | None:
        if isinstance(step, Call):
            return self._call(step)
        return self._sleep(step) if isinstance(step, Sleep) else None

    def _call(self, call: Call) -> Outcome | Unknown:
        past = self.pasts.get((call.stage, call.attempt + 1))
        if past is None:
            return self._unrecorded(call)
        self.at, self.attempts = past, self.attempts + 1
        if bound := self._bound(past, call):
            seconds, cause = bound
            self.cut += past.tried.cut_by is None
            self.shift += seconds - past.tried.duration
            is_expired = cause is Cause.EXPIRED
            what = TRANSACTION if is_expired else f"{call.stage.value} attempt"
            return timed_out(what, seconds, is_expired=is_expired)
        return self._unknown(call, Why.LONGER) if self._has_longer(past, call) else _outcome(past)

    def _unrecorded(self, call: Call) -> Outcome | Unknown:
        has_handler = any(stage is call.stage for stage, _ in self.pasts)
        if call.stage is Stage.EXCEPTION and self.past.is_failed and not has_handler:
            return DONE  # the task has none
        if call.stage is Stage.SUCCESS and not has_handler:
            return DONE  # the same
        self.attempts += call.stage is not Stage.EXCEPTION
        return self._unknown(call, Why.FURTHER)

    def _unknown(self, call: Call, why: Why) -> Outcome | Unknown:
        if call.stage is Stage.EXCEPTION:  # however it ends, the transaction has failed
            self.handlers += 1
            return DONE
        return Unknown(call.stage, call.attempt + 1, why)

    def _bound(self, past: Past, call: Call) -> tuple[float, Cause] | None:
        """The limit that ends the attempt before it ends by itself, as far as that is known."""
        tried, bounds = past.tried, []
        before, limit = tried.limit, call.retry.timeout
        is_longest = tried.cut_by is Cause.LIMIT or (limit is not None and limit < tried.duration)
        if limit is not None and is_longest and (before is None or limit < before):
            bounds.append((limit, Cause.LIMIT))
        left = self._left(past, past.offset)
        is_later = left <= past.left if tried.cut_by is Cause.EXPIRED else left < min(past.left, tried.duration)
        if left < math.inf and is_later:
            bounds.append((max(0.0, left), Cause.EXPIRED))
        return min(bounds, default=None)

    def _has_longer(self, past: Past, call: Call) -> bool:
        """Whether a limit cut the attempt that is another one now."""
        if past.tried.cut_by is Cause.LIMIT:
            return call.retry.timeout != past.tried.limit
        if past.tried.cut_by is Cause.EXPIRED:
            return call.stage is not Stage.EXCEPTION or self.terms.timeout != past.tried.terms.timeout
        return False

    def _sleep(self, sleep: Sleep) -> Outcome | None:
        past, seconds = self.at, sleep.seconds
        end = past.offset + past.tried.duration
        left, before = self._left(past, end), left_of(past.tried.terms.timeout, end)
        if past.ended_by is Cause.EXPIRED:  # while it waited
            is_over = left < seconds or (left <= before and seconds >= past.waited)
        else:
            is_over = left < seconds and (left < before or seconds > past.waited)
        if left < math.inf and is_over:
            self.waited += min(seconds, max(0.0, left))
            return timed_out(TRANSACTION, seconds, is_expired=True)
        self.waited += seconds
        self.shift += seconds - past.waited
        return None

    def _left(self, past: Past, elapsed: float) -> float:
        """The time that the transaction would have left; an exception handler has its own."""
        timeout = None if past.tried.stage is Stage.EXCEPTION else self.terms.timeout
        return left_of(timeout, elapsed + self.shift)


def _outcome(past: Past) -> Outcome:
    category = past.tried.category
    if category is None:
        return Success(None)
    if past.is_asked:
        later = RetryLater()
        later.after = past.waited
        return Failure(later)
    error = TransactionException("", category)
    error.is_fatal = past.ended_by is Cause.FATAL
    return Failure(error, is_expired=past.tried.cut_by is Cause.EXPIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The figures of a sample: as it was recorded, or under other terms as far as known."""

    attempts: int = 0
    dead_letters: int = 0
    waited: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a policy would have changed in a sample of transactions."""

    transactions: int = 0
    left_out: int = 0  # interrupted, incomplete, or of another kind
    recorded: Tally = field(default_factory=Tally)
    rehearsed: Tally = field(default_factory=Tally)
    changed: int = 0
    new_dead_letters: int = 0
    maybe_saved: int = 0  # dead letters whose end would be unknown
    at_risk: int = 0  # successes whose end would be unknown
    cut: int = 0
    handlers: int = 0
    unknown: tuple[tuple[Unknown, int], ...] = ()
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def unknowns(self) -> int:
        """The transactions whose end would be unknown."""
        return self.maybe_saved + self.at_risk

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON; the examples stand for themselves."""
        told = [
            {"step": one.stage.value, "number": one.number, "why": one.why.value, "count": count}
            for one, count in self.unknown
        ]
        return {name: value for name, value in asdict(self).items() if name != "examples"} | {"unknown": told}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        unknown = tuple(
            (Unknown(Stage(one["step"]), one["number"], Why(one["why"])), one["count"]) for one in told["unknown"]
        )
        tallies = {name: Tally(**told[name]) for name in ("recorded", "rehearsed")}
        return cls(**{**told, **tallies, "unknown": unknown})


def rehearse(records: Iterable[Record | None], terms: Terms) -> Rehearsal:
    """Play all that was recorded, and count; None is a transaction whose record is not whole."""
    counted: Counter[str] = Counter()
    unknown: Counter[Unknown] = Counter()
    waited = {"before": 0.0, "after": 0.0}
    examples: dict[str, list[str]] = {"dead_letters": [], "unknown": []}
    for one in records:
        again = None if one is None else rerun(one, terms)
        if one is None or again is None:
            counted["left_out"] += 1
            continue
        counted += Counter(_counts(one, again))
        waited["before"] += one.waited
        waited["after"] += again.waited
        if again.unknown is not None:
            unknown[again.unknown] += 1
            examples["unknown"].append(one.uid)
        elif again.is_failed and not one.is_failed:
            examples["dead_letters"].append(one.uid)
    before, after = (
        Tally(attempts=counted[f"attempts_{side}"], dead_letters=counted[f"dead_{side}"], waited=_finite(seconds))
        for side, seconds in waited.items()
    )
    names = ("transactions", "left_out", "changed", "new_dead_letters", "maybe_saved", "at_risk", "cut", "handlers")
    return Rehearsal(
        **{name: counted[name] for name in names},
        recorded=before,
        rehearsed=after,
        unknown=tuple(sorted(unknown.items())),
        examples={name: tuple(uids[:EXAMPLES]) for name, uids in examples.items()},
    )


def _counts(one: Record, again: Rerun) -> dict[str, int]:
    is_unknown = again.is_failed is None
    is_same = (len(one.attempts), one.is_failed) == (again.attempts, again.is_failed)
    is_same = is_same and math.isclose(one.waited, again.waited, abs_tol=1e-6)
    return {
        "transactions": 1,
        "attempts_before": len(one.attempts),
        "attempts_after": again.attempts,
        "dead_before": int(one.is_failed),
        "dead_after": int(again.is_failed or False),
        "changed": int(not is_same),
        "new_dead_letters": int(bool(again.is_failed) and not one.is_failed),
        "maybe_saved": int(is_unknown and one.is_failed),
        "at_risk": int(is_unknown and not one.is_failed),
        "cut": again.cut,
        "handlers": again.handlers,
    }


def total(parts: Iterable[Rehearsal]) -> Rehearsal:
    """The sum of rehearsals of several pipelines."""
    whole = Rehearsal(examples={"dead_letters": (), "unknown": ()})
    for part in parts:
        unknown = Counter(dict(whole.unknown)) + Counter(dict(part.unknown))
        names = ("transactions", "left_out", "changed", "new_dead_letters", "maybe_saved", "at_risk", "cut", "handlers")
        whole = replace(
            whole,
            **{name: getattr(whole, name) + getattr(part, name) for name in names},
            recorded=_sum(whole.recorded, part.recorded),
            rehearsed=_sum(whole.rehearsed, part.rehearsed),
            unknown=tuple(sorted(unknown.items())),
            examples={name: (*whole.examples[name], *uids)[:EXAMPLES] for name, uids in part.examples.items()},
        )
    return whole


def _finite(seconds: float) -> float:
    """Milliseconds are enough; and no JSON has an infinite number, which very long waits add up to."""
    return round(min(seconds, LONGEST), 3)


def _sum(one: Tally, other: Tally) -> Tally:
    return Tally(
        attempts=one.attempts + other.attempts,
        dead_letters=one.dead_letters + other.dead_letters,
        waited=_finite(one.waited + other.waited),
    )
