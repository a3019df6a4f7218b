"""The database's side of an execution, and what is done without it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from providers import calls, telemetry
from providers.core.errors import ProviderCircuitOpenError
from providers.core.exchange import LEAST, SLACK, CallRequest, Who, time_to_ask
from providers.core.gate import Admission, Asked, Decision, Scope
from providers.core.policy import StoreFailure
from providers.core.steps import (
    Admit,
    Busy,
    Cached,
    Claim,
    Claimed,
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
from providers.drivers.circuit_breaker import CircuitBreaker

log = structlog.get_logger("ergon.providers")
T = TypeVar("T")
# Seconds that the database has at least to settle.
LEAST_TO_SETTLE = 1.0

_breakers: dict[Who, CircuitBreaker] = {}
# Of each capability whose bulkhead is this process's: when the place of each running call expires.
_running: dict[Who, dict[str, float]] = {}
_lock = threading.Lock()


class Store:
    """Claims, admits and settles one execution; while the database is away, as the policy says."""

    def __init__(self, ticket: CallRequest, clock: Callable[[], float], *, is_checked: bool = True) -> None:
        self._ticket = ticket
        self._is_checked = is_checked  # it is known that this is no transaction of the caller's
        self._clock = clock
        self._refused_by: Admission | None = None
        self._is_local = False
        self._has_place = False  # in the bulkhead of this process

    def perform(self, step: Claim | Admit | Settle | Spool | Refuse | LookUp | Keep | StandIn | GiveUp) -> Any:
        if not self._is_checked:
            calls.refuse_open_transaction()
            self._is_checked = True
        match step:
            case Claim():
                return self._claim()
            case Admit():
                return self._admit(step)
            case Settle():
                return self._settle(step)
            case Spool(settlement):
                return calls.spool(self._ticket, settlement)
            case Refuse():
                return self._refuse(step)
            case LookUp(age):
                return self._look_up(age)
            case Keep(payload):
                return self._ask("keep", lambda _: calls.keep_answer(self._ticket, payload))
            case StandIn() | GiveUp():
                return self._note(step)

    def _claim(self) -> Claimed | Replay | Busy | Taken | StoreLost:
        left, lease = self._left(), self._ticket.policy.idempotency_lease
        # The request is also in progress while it waits for its turn.
        lease = max(lease + self._ticket.policy.max_wait, (left or 0.0) + SLACK)
        for _ in range(2):  # the second time on a new connection, if only this one was lost
            if calls.is_waiting_for(self._ticket):
                # Before the key can be taken again: whoever took it first would make the call once more.
                with suppress(*calls.LOST), calls.answered_within(self._time_for("claim")):
                    calls.replay_same(self._ticket)
        found = self._ask("claim", lambda _: calls.claim(self._ticket, lease=lease))
        if isinstance(found, Claimed):
            self._ticket.token = found.token
        if not (isinstance(found, StoreLost) and self._allows_local()):
            return found
        answer = calls.answer_to(self._ticket)
        return Claimed() if answer is None else Replay(answer)

    def _admit(self, step: Admit) -> Admission | StoreLost:
        if self._is_limited_here() and not self._take_place():
            return Admission(Decision.BULKHEAD)
        is_admitted = False
        try:
            found = self._pass(step)
            is_admitted = isinstance(found, Admission) and found.decision.is_admission
        finally:
            if not is_admitted:
                self._leave_place()
        return found

    def _pass(self, step: Admit) -> Admission | StoreLost:
        policy = self._ticket.policy
        found = self._ask("admit", lambda _: calls.admit(self._ticket.who, self._asked(step.cost)))
        self._is_local = isinstance(found, StoreLost)
        if not isinstance(found, StoreLost):
            self._refused_by = None if found.decision.is_admission else found
            return found
        if not self._allows_local():
            return found
        # What nobody counts for the fleet is counted here.
        if policy.bulkhead.is_fleets and not self._take_place():
            return Admission(Decision.BULKHEAD)
        try:
            permit = self._breaker().before_call()
        except ProviderCircuitOpenError as error:
            return Admission(Decision.CIRCUIT, retry_after=error.retry_after)
        return Admission(Decision.PROBE if permit.probe else Decision.ADMITTED, permit)

    def _asked(self, cost: int) -> Asked:
        policy, bulkhead = self._ticket.policy, self._ticket.policy.bulkhead
        return Asked(
            policy.breaker,
            cost,
            policy.probe_lease,
            Scope(policy.breaker_scope),
            Scope(policy.pause_scope),
            self._ticket.account,
            max_concurrent=None if self._is_limited_here() else bulkhead.max_concurrent,
            call_lease=self._call_lease(),
            rate_limit=policy.rate_limit,
        )

    def _is_limited_here(self) -> bool:
        """Whether this process counts the calls of its own that run at once."""
        bulkhead = self._ticket.policy.bulkhead
        return bulkhead.max_concurrent is not None and not bulkhead.is_fleets

    def _call_lease(self) -> float:
        """A call that keeps to its timeout holds its place to the end."""
        policy = self._ticket.policy
        return max(policy.bulkhead.lease, (policy.timeout or 0.0) + SLACK)

    def _take_place(self) -> bool:
        """Take a place in the bulkhead of this process, if there is one left."""
        most, now = self._ticket.policy.bulkhead.max_concurrent, self._clock()
        if most is None:
            return True
        with _lock:
            running = _running.setdefault(self._ticket.who, {})
            for lapsed in [name for name, until in running.items() if until <= now]:
                del running[lapsed]
            if len(running) >= most:
                return False
            running[self._ticket.call_id] = now + self._call_lease()
            self._has_place = True
            return True

    def _leave_place(self) -> None:
        if not self._has_place:
            return
        self._has_place = False
        with _lock:
            running = _running.get(self._ticket.who, {})
            running.pop(self._ticket.call_id, None)  # unless its lease has ended
            if not running:
                _running.pop(self._ticket.who, None)

    def _settle(self, step: Settle) -> Decision | StoreLost:
        self._leave_place()
        if self._is_local:
            self._breaker().after_call(step.admission.permit, error=step.error)
            return Decision.RETRY if step.wants_retry else StoreLost(is_local=True)

        def settle(is_repeat: bool) -> Decision:  # noqa: FBT001 (of a callback)
            calls.claim_afterwards(self._ticket)
            return calls.settle(self._ticket, step._replace(is_repeat=is_repeat or step.is_repeat))

        return self._ask("settle", settle)

    def _refuse(self, step: Refuse) -> StoreLost | None:
        if self._is_local:
            return StoreLost(is_local=True)

        def refuse(is_repeat: bool) -> None:  # noqa: FBT001 (of a callback)
            calls.refuse(self._ticket, step, self._refused_by, is_repeat=is_repeat)

        return self._ask("refuse", refuse)

    def _look_up(self, age: float) -> Cached | None:
        """Without the database there is nothing to be found."""
        if self._is_local:
            return None
        found = self._ask("look up", lambda _: calls.look_up_answer(self._ticket, age))
        return None if isinstance(found, StoreLost) else found

    def _note(self, step: StandIn | GiveUp) -> StoreLost | None:
        if self._is_local:
            return StoreLost(is_local=True)
        if isinstance(step, StandIn):
            return self._ask("stand in", lambda is_repeat: calls.stand_in(self._ticket, step, is_repeat=is_repeat))
        return self._ask("give up", lambda is_repeat: calls.give_up(self._ticket, step, is_repeat=is_repeat))

    def _ask(self, name: str, verb: Callable[[bool], T]) -> T | StoreLost:
        """The result of a verb, unless the database is away. If only the connection was lost, it is asked again."""
        for is_repeat in (False, True):
            limit = calls.answered_within(self._time_for(name))
            try:
                with limit:
                    found = verb(is_repeat)
            except calls.LOST as error:
                lost = error
            else:
                if calls.known.has_outcomes:
                    calls.replay_known()
                return found
            if isinstance(lost, calls.DatabaseTimeoutError) or not limit.was_connected or calls.is_connected():
                break
        telemetry.store_failures.add(1, {telemetry.VERB: name})
        about = {"verb": name, "error_type": type(lost).__name__, **self._ticket.who._asdict()}
        log.warning("provider store unavailable", **about)
        return StoreLost()

    def _time_for(self, verb: str) -> float:
        """The seconds that the database has for an answer."""
        return time_to_ask(self._left(), LEAST_TO_SETTLE if verb == "settle" else LEAST)

    def _left(self) -> float | None:
        return self._ticket.context.left(self._clock())

    def _allows_local(self) -> bool:
        return self._ticket.policy.on_store_failure == StoreFailure.LOCAL

    def _breaker(self) -> CircuitBreaker:
        """The breaker of this process, for as long as its policy stays the same."""
        policy = self._ticket.policy
        with _lock:
            breaker = _breakers.get(self._ticket.who)
            terms = (policy.breaker, policy.count_rate_limited)
            if breaker is None or (breaker.policy, breaker.count_rate_limited) != terms:
                breaker = CircuitBreaker(terms[0], count_rate_limited=terms[1], probe_lease=policy.probe_lease)
                _breakers[self._ticket.who] = breaker
            return breaker
