"""The database's side of an execution, and what is done without it."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from providers import calls, telemetry
from providers.core.errors import ProviderCircuitOpenError
from providers.core.exchange import SLACK, CallRequest, Who
from providers.core.gate import Admission, Asked, Decision
from providers.core.policy import StoreFailure
from providers.core.steps import Admit, Busy, Claim, Claimed, Refuse, Replay, Settle, StoreLost, Taken
from providers.drivers.circuit_breaker import CircuitBreaker

log = structlog.get_logger("ergon.providers")
T = TypeVar("T")

_breakers: dict[Who, CircuitBreaker] = {}
_lock = threading.Lock()


class Store:
    """Claims, admits and settles one execution; while the database is away, as the policy says."""

    def __init__(self, ticket: CallRequest, clock: Callable[[], float]) -> None:
        self._ticket = ticket
        self._clock = clock
        self._refused_by: Decision | None = None
        self._is_local = False

    def perform(self, step: Claim | Admit | Settle | Refuse) -> Any:
        match step:
            case Claim():
                return self._claim()
            case Admit():
                return self._admit(step)
            case Settle():
                return self._settle(step)
            case Refuse():
                return self._refuse(step)

    def _claim(self) -> Claimed | Replay | Busy | Taken | StoreLost:
        left, lease = self._ticket.context.left(self._clock()), self._ticket.policy.idempotency_lease
        found = self._ask(lambda: calls.claim(self._ticket, lease=max(lease, (left or 0.0) + SLACK)), "claim")
        if isinstance(found, Claimed):
            self._ticket.token = found.token
        if found is None:
            return Claimed() if self._allows_local() else StoreLost()
        return found

    def _admit(self, step: Admit) -> Admission | StoreLost:
        policy = self._ticket.policy
        asked = Asked(policy.breaker, step.cost, policy.probe_lease)
        found = self._ask(lambda: calls.admit(self._ticket.who, asked), "admit")
        self._is_local = found is None
        if found is not None:
            self._refused_by = None if found.decision.is_admission else found.decision
            return found
        if not self._allows_local():
            return StoreLost()
        try:
            permit = self._breaker().before_call()
        except ProviderCircuitOpenError as error:
            return Admission(Decision.CIRCUIT, retry_after=error.retry_after)
        return Admission(Decision.PROBE if permit.probe else Decision.ADMITTED, permit)

    def _settle(self, step: Settle) -> Decision | StoreLost:
        if self._is_local:
            self._breaker().after_call(step.admission.permit, error=step.error)
            return Decision.RETRY if step.wants_retry else StoreLost()
        decision = self._ask(lambda: calls.settle(self._ticket, step), "settle")
        return StoreLost() if decision is None else decision

    def _refuse(self, step: Refuse) -> StoreLost | None:
        if self._is_local:
            return StoreLost()

        def refuse() -> bool:
            calls.refuse(self._ticket, step, self._refused_by)
            return True

        return None if self._ask(refuse, "refuse") else StoreLost()

    def _ask(self, verb: Callable[[], T], name: str) -> T | None:
        """The result of a verb; None if the database is away."""
        try:
            with calls.lost_connections_closed():
                return verb()
        except calls.LOST as error:
            telemetry.store_failures.add(1, {telemetry.VERB: name})
            about = {"verb": name, "error_type": type(error).__name__, **self._ticket.who._asdict()}
            log.warning("provider store unavailable", **about)
            return None

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
