"""A model of the gate as a value, in Python: what the statements of `providers.database` decide on a row.

Tables say what it decides, and `tests/providers/test_gate_statements.py` compares the statements with it over histories
made by chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import floor
from typing import NamedTuple

from providers.core.breaker import SLICES, Breaker, BreakerPolicy, BreakerState, OpeningRules, Permit, Verdict
from providers.core.gate import NOTHING, SET_BACK, Admission, Asked, Decision, Reservation, Window, aligned
from providers.core.limits import ROUNDED
from providers.core.retry import RetryBudget

# Calls by slice: how many, failed, slow.
Recent = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit, and what is used of it in the present window; and the window before, for calls that end late."""

    limit: int
    window: float
    start: float
    end: float
    used: int = 0
    previous_start: float | None = None
    previous_used: int = 0

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    def at(self, now: float) -> "Quota":
        """The quota in the window of this time. Windows go back only if a clock does, by more than a minute."""
        if self.start - SET_BACK <= now < self.end:
            return self
        start, end, used = Window(self.start, self.end, self.used).at(now, self.window)
        return replace(self, start=start, end=end, used=used, previous_start=self.start, previous_used=self.used)

    def refuses(self, cost: int) -> bool:
        return cost > 0 and self.used + cost > self.limit

    def reserve(self, cost: int) -> "Quota":
        return replace(self, used=self.used + cost)

    def refund(self, reservation: Reservation) -> "Quota":
        """Give back what was reserved, unless its window is over."""
        is_over = reservation.window_start != self.start
        return self if is_over else replace(self, used=max(0, self.used - reservation.amount))


class Override(NamedTuple):
    """An operator's word, which stands above the breaker while it lasts."""

    state: BreakerState
    until: float | None = None

    def holds(self, now: float) -> bool:
        return self.until is None or self.until > now


class Returned(NamedTuple):
    permit: Permit
    verdict: Verdict
    breaker: BreakerPolicy
    budget: RetryBudget
    wants_retry: bool = False
    cooldown: float | None = None
    refund: Reservation = NOTHING
    refunds_retry: bool = False  # or only if the call ends here
    succeeded: bool = False  # whatever that says of the provider
    is_shut_elsewhere: bool = False
    rules: OpeningRules = OpeningRules()
    is_slow: bool = False
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    breaker: Breaker = field(default_factory=Breaker)
    quota: Quota | None = None
    cooldown_until: float | None = None
    tokens: float | None = None  # None is as many as there can be
    override: Override | None = None
    admissions: int = 0
    settlements: int = 0
    recent: Recent = field(default_factory=dict)
    shadow_openings: int = 0
    running: Mapping[str, float] = field(default_factory=dict)
    full_at: float = 0.0
    turned_at: float | None = None  # when the breaker has changed its state
    decided_at: float | None = field(default=None, compare=False)

    def state_at(self, now: float) -> BreakerState:
        """The breaker's effective state: what an operator says, or what it amounts to by now."""
        if self.override is not None and self.override.holds(now):
            return self.override.state
        return self.breaker_at(now).state_at(now)

    def breaker_at(self, now: float) -> Breaker:
        """The breaker; one that opened before the clock was set back has cooled down."""
        is_set_back = (self.turned_at or 0.0) > now + SET_BACK
        return replace(self.breaker, open_until=now) if is_set_back and self.breaker.open_until else self.breaker

    def at(self, asked: Asked, now: float) -> "Gate":
        """The gate at this time: with its window, and a bucket that lacks no more than all its tokens.

        No call that runs holds its place for longer than a lease from now.
        """
        limit, gate = asked.rate_limit, self.unpaused(now)
        full_at = min(self.full_at, now + limit.burst * limit.interval) if limit.interval else self.full_at
        running, last = self.running, now + asked.call_lease
        if asked.max_concurrent is not None and any(until > last + SET_BACK for until in running.values()):
            running = self.live(last, now)
        return replace(gate, quota=self.quota.at(now) if self.quota else None, full_at=full_at, running=running)

    def live(self, last: float, now: float) -> dict[str, float]:
        """The places of running calls that have not lapsed, none for longer than this."""
        return {place: min(until, last) for place, until in self.running.items() if until > now}

    def unpaused(self, now: float) -> "Gate":
        """The gate as it is decided on: without a pause from before the clock was set back."""
        is_over = (self.decided_at or 0.0) > now + SET_BACK and (self.cooldown_until or 0.0) > now
        return replace(self, cooldown_until=None if is_over else self.cooldown_until, decided_at=now)

    def admit(self, asked: Asked, now: float) -> tuple["Gate", Admission]:
        """Let a call pass, or say why not; quota is named first. What is refused spends nothing."""
        gate = self.at(asked, now)
        if gate.quota is not None and gate.quota.refuses(asked.cost):
            return gate, Admission(Decision.QUOTA, retry_after=gate.quota.end - now)
        forced = self.override if self.override is not None and self.override.holds(now) else None
        if forced and forced.state is BreakerState.OPEN:
            wait = None if forced.until is None else forced.until - now
            return gate, Admission(Decision.CIRCUIT, retry_after=wait)
        breaker = gate.breaker_at(now)
        last = now + asked.probe_lease + SET_BACK
        known = replace(breaker, probes={name: until for name, until in breaker.probes.items() if until <= last})
        if not forced and known.refuses(asked.breaker, now):
            return gate, Admission(Decision.CIRCUIT, retry_after=max(0.0, known.reopens_at(now) - now))
        if gate.cooldown_until is not None and now < gate.cooldown_until:
            return gate, Admission(Decision.COOLING, retry_after=gate.cooldown_until - now)
        interval, burst = asked.rate_limit.interval, asked.rate_limit.burst
        lacks = max(0.0, gate.full_at - now)
        if interval and lacks - (burst - 1) * interval > ROUNDED:
            return gate, Admission(Decision.RATE, retry_after=lacks - (burst - 1) * interval)
        live = gate.live(now + asked.call_lease, now)
        if asked.max_concurrent is not None and len(live) >= asked.max_concurrent:
            return gate, Admission(Decision.BULKHEAD)
        number = gate.admissions + 1
        permit = Permit(gate.breaker.generation)
        if forced:
            breaker = gate.breaker
        else:
            breaker, permit = breaker.admit(now, str(number), asked.probe_lease)
        quota = gate.quota.reserve(asked.cost) if gate.quota else None
        turned_at = gate.turned_at if breaker.generation == gate.breaker.generation else now
        passed = replace(gate, breaker=breaker, quota=quota, admissions=number, turned_at=turned_at)
        place = None if asked.max_concurrent is None else str(number)
        if place:
            passed = replace(passed, running={**live, place: now + asked.call_lease})
        if interval:
            passed = replace(passed, full_at=now + lacks + interval)
        decision = Decision.PROBE if permit.probe else Decision.ADMITTED
        reserved = asked.cost if quota else 0
        return passed, Admission(decision, permit, quota.start if quota else None, reserved, place=place)

    def is_shut(self, now: float) -> bool:
        return self.state_at(now) is BreakerState.OPEN

    def settle(self, result: Returned, now: float) -> tuple["Gate", Decision]:
        """Take in how a call came out, and say whether it may be tried again."""
        breaker = self.breaker.settle(result.permit, result.verdict, result.breaker, now)
        recent, is_broken = self._count(result, now)
        is_tripped = is_broken and not result.rules.is_shadow and breaker.state is BreakerState.CLOSED
        if is_tripped:
            until = now + result.breaker.open_cooldown_seconds
            failures = breaker.consecutive_failures
            breaker = Breaker(BreakerState.OPEN, breaker.generation + 1, failures, open_until=until)
        has_turned = breaker.generation != self.breaker.generation
        recent, turned_at = ({}, now) if has_turned else (recent, self.turned_at)
        shadows = self.shadow_openings + int(is_broken and breaker.state is BreakerState.CLOSED)
        tokens = result.budget.capacity if self.tokens is None else self.tokens
        decision = Decision.ENDED
        if result.succeeded:
            tokens = earn(result.budget, tokens)
        elif result.wants_retry and (
            result.is_shut_elsewhere or replace(self, breaker=breaker, turned_at=turned_at).is_shut(now)
        ):
            decision = Decision.SHUT
        elif result.wants_retry:
            left = spend(result.budget, tokens)
            decision = Decision.SUPPRESSED if left is None else Decision.RETRY
            tokens = tokens if left is None else left
        quota = self.quota
        if quota is not None and (decision is not Decision.RETRY or result.refunds_retry):
            quota = quota.refund(result.refund)
        cooldown = self.unpaused(now).cooldown_until
        if result.cooldown is not None:
            cooldown = max(cooldown or 0.0, now + result.cooldown)
        running = {place: until for place, until in self.running.items() if place != result.place}
        changes = {"cooldown_until": cooldown, "tokens": tokens, "recent": recent, "running": running}
        changes |= {"turned_at": turned_at, "decided_at": now}
        after = replace(self, breaker=breaker, quota=quota, **changes)  # type: ignore[arg-type]
        return replace(after, settlements=self.settlements + 1, shadow_openings=shadows), decision

    def _count(self, result: Returned, now: float) -> tuple[Recent, bool]:
        """The latest calls with this one, and whether a rate is broken by them; then they are not looked at again."""
        is_current = result.permit.generation == self.breaker.generation
        is_closed = self.breaker.state is BreakerState.CLOSED
        if not (result.rules.are_used and is_current and is_closed and result.verdict is not Verdict.NEUTRAL):
            return self.recent, False
        position = now if result.rules.seconds is not None else self.settlements
        present = floor(position / result.rules.width)
        recent = {slice_: counts for slice_, counts in self.recent.items() if abs(slice_ - present) < SLICES}
        before = recent.get(present, (0, 0, 0))
        added = (1, int(result.verdict is Verdict.FAILURE), int(result.is_slow))
        recent[present] = tuple(map(sum, zip(before, added, strict=True)))
        calls, failures, slow = map(sum, zip(*recent.values(), strict=True))
        rates = ((result.rules.failure_rate, failures), (result.rules.slow_rate, slow))
        is_broken = any(rate is not None and count >= rate * calls for rate, count in rates)
        is_broken = is_broken and calls >= result.rules.minimum_calls
        return ({} if is_broken else recent), is_broken


class Asks(NamedTuple):
    """What one of two gates is asked for; for an operator's word and for the quota it always is."""

    breaker: bool = True
    pause: bool = True

    def of(self, gate: Gate) -> Gate:
        """The gate without what nobody asks it for."""
        breaker = gate.breaker if self.breaker else Breaker(generation=gate.breaker.generation)
        return replace(gate, breaker=breaker, cooldown_until=gate.cooldown_until if self.pause else None)

    def back(self, gate: Gate, after: Gate) -> Gate:
        """What becomes of the gate; what it was not asked for stays as it was."""
        breaker = after.breaker if self.breaker else gate.breaker
        return replace(after, breaker=breaker, cooldown_until=gate.unpaused(after.decided_at or 0.0).cooldown_until)


@dataclass(frozen=True, slots=True)
class Pair:
    """The gate of a tenant and that of its account: a call passes both, or spends nothing of either."""

    tenant: Gate
    account: Gate
    asks_tenant: Asks
    asks_account: Asks

    def admit(self, asked: Asked, now: float) -> tuple["Pair", Admission, Admission]:
        tenant, one = self.asks_tenant.of(self.tenant).admit(asked, now)
        account, other = self.asks_account.of(self.account).admit(asked.of_account, now)
        if one.decision.is_admission and other.decision.is_admission:
            passed = self.asks_tenant.back(self.tenant, tenant), self.asks_account.back(self.account, account)
            return replace(self, tenant=passed[0], account=passed[1]), one, other
        refused = replace(self, tenant=self.tenant.at(asked, now), account=self.account.at(asked.of_account, now))
        return refused, one, other

    def settle(self, tenant: Returned, account: Returned, now: float) -> tuple["Pair", Decision]:
        """Settle both. The account's refund waits for the tenant's decision; its breaker may end retries."""
        shut = self.asks_account.of(self.account.settle(account, now)[0]).is_shut(now)
        after, decision = self.tenant.settle(tenant._replace(is_shut_elsewhere=shut), now)
        refund = account.refund if decision is not Decision.RETRY or tenant.refunds_retry else NOTHING
        other, _ = self.account.settle(account._replace(refund=refund, wants_retry=False), now)
        return replace(self, tenant=after, account=replace(other, tokens=self.account.tokens)), decision


def opened(limit: int, window: float, now: float) -> Quota:
    """A new quota, in the window of this time."""
    return Quota(limit, window, *aligned(now, window))


def earn(budget: RetryBudget, tokens: float) -> float:
    return min(budget.capacity, tokens + budget.earned_by_success)


def spend(budget: RetryBudget, tokens: float) -> float | None:
    """The budget after a retry; None if there is not enough for one."""
    return min(tokens, budget.capacity) - 1 if min(tokens, budget.capacity) >= 1 else None
