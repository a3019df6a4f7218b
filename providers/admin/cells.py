"""Cells of the providers' pages: rates, times, quotas and states as people read them, and links between pages."""

import re
from contextlib import suppress
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode

from engines.core.errors import PolicyError
from ergon_site.access.console.cells import (
    FULL,
    UNKNOWN,
    anchor,
    measured,
    meter,
    milliseconds,
    moment,
    note,
    percentage,
    tag,
    two_lines,
    unbroken,
)
from ergon_site.access.console.states import STATES, label
from ergon_site.access.core.durations import exact_span, span
from providers import active_policy, registry
from providers.core.breaker import BreakerState
from providers.core.events import EventKind
from providers.core.exchange import Who
from providers.core.limits import BulkheadPolicy
from providers.core.policy import ProviderPolicy
from providers.models import ProviderEvent, ProviderExecutionMetric, ProviderHealthState, ProviderPolicyRow
from providers.reads.health import NEARLY, QuotaStanding, Standing

LONGEST_UNBROKEN = 36
# The sources of answers that are not the provider's.
STAND_INS = ("cache", "stale", "fallback")
# As events of quotas record them.
QUOTA = re.compile(r"(?P<limit>\d+) in (?P<window>[\d.e+]+) s")


def share(rate: float | None) -> str:
    return UNKNOWN if rate is None else percentage(100 * rate)


def quota(one: QuotaStanding | None) -> str:
    """The used part of a quota, as a bar and in numbers."""
    if one is None:
        return note("no quota")
    return meter(one.percent, f"{one.used:,} of {one.limit:,}", warning=FULL * NEARLY)


def places(one: Standing, policy: ProviderPolicyRow | None) -> str:
    """The taken places of the fleet's bulkhead; empty where there is none, as far as this process knows."""
    known, bulkhead, now = registry.known(*one.who[1:]), BulkheadPolicy(), one.read_at.timestamp()
    with suppress(PolicyError):  # of a class whose attributes make no policy
        if policy is not None and policy.active is not None:
            bulkhead = ProviderPolicy.from_stored(policy.active.body).bulkhead
        elif known is not None:
            bulkhead = active_policy.defaults_of(known).bulkhead
    most = bulkhead.max_concurrent if bulkhead.is_fleets else None
    if one.gate is None or most is None:
        return ""
    taken = sum(until > now for until in one.gate.running.values())
    return meter(FULL * taken / most, f"{taken:,} of {most:,} places taken", warning=FULL * NEARLY)


def success(one: Standing) -> str:
    """The success rate of the last hour, with a link to its attempts."""
    rate = one.rates.success
    return measured(UNKNOWN if rate is None else anchor(attempts_address(one.who), share(rate)))


def last_error(known: ProviderHealthState | None) -> str:
    """The code of the last error, and when it was."""
    if known is None or known.last_error_code is None:
        return UNKNOWN
    return two_lines(known.last_error_code, moment(known.last_error_at) if known.last_error_at else UNKNOWN)


def whose(who: Who) -> str:
    """A capability and its tenant; of an account, all that share it."""
    if who.is_account:
        return two_lines(who.provider_name, who.title.removeprefix(f"{who.provider_name} of "))
    return two_lines(f"{who.provider_name} {who.capability}", tenant(who.tenant_id))


def tenant(name: str) -> str:
    """A UUID stays on one line; what is longer breaks."""
    return unbroken(name) if len(name) <= LONGEST_UNBROKEN else name


def away(at: datetime, now: datetime) -> str:
    return span(max(0.0, (at - now).total_seconds()))


def attempt(row: ProviderExecutionMetric) -> dict[str, Any]:
    page = address("providers_providerexecutionmetric", row.pk)
    return {"row": row, "address": page, "outcome": outcome(row), "took": milliseconds(row.duration_ms)}


def outcome(row: ProviderExecutionMetric) -> str:
    """How an attempt ended; of an answer that is not the provider's, what stood in."""
    return tag(row.source if row.source in STAND_INS else row.outcome, "provider attempt")


def event(row: ProviderEvent) -> dict[str, Any]:
    return {"row": row, "address": address("providers_providerevent", row.pk), "change": change(row)}


def change(row: ProviderEvent) -> str:
    """From what to what, on one line."""
    if row.kind == EventKind.QUOTA.value:
        before, after = QUOTA.sub(_per_window, row.from_state), QUOTA.sub(_per_window, row.to_state)
    else:
        before = label(row.from_state, "breaker")
        after = tag(row.to_state, "breaker") if row.to_state in STATES["breaker"] else row.to_state
    return format_html('<span class="ergon-when">{} → {}</span>', before, after)


def _per_window(found: re.Match[str]) -> str:
    return f"{int(found['limit']):,} in {exact_span(float(found['window']))}"


def tags(one: Standing) -> str:
    """The effective state, and whether somebody forced it or the provider asked for a pause."""
    extra = ["forced"] if one.override else []
    extra += ["paused"] if one.cooldown_until else []
    if one.account and one.account.state is not BreakerState.CLOSED:
        extra.append(f"account_{one.account.state}")
    return format_html_join(" ", "{}", [(tag(word, "breaker"),) for word in (one.state, *extra)])


def why(one: Standing) -> str:
    if one.override:
        until = f"{away(one.override_until, one.read_at)} more" if one.override_until else "until reset"
        return f"by {one.override_by}, {until}: {one.override_reason}"
    told = []
    if one.reopens_at:
        told.append(f"probed in {away(one.reopens_at, one.read_at)}")
    elif one.failures:
        told.append(f"{one.failures:,} failure{'s' if one.failures > 1 else ''} in a row")
    if one.cooldown_until:
        told.append(f"paused for {away(one.cooldown_until, one.read_at)}")
    return ", ".join(told)


def sentence(one: Standing) -> str:
    """The status of a capability in one sentence."""
    if one.account and one.account.state is BreakerState.OPEN and not one.override:
        return "The breaker of the account is open: calls of all tenants that share it are blocked."
    if one.override:
        until = f"for {away(one.override_until, one.read_at)} more" if one.override_until else "until it is reset"
        passes = (
            "all calls are blocked"
            if one.state is BreakerState.OPEN
            else "calls are allowed, whatever the state of the breaker"
        )
        return f"Forced {one.override} by {one.override_by}, {until}: {passes}."
    if one.quota and one.quota.remaining == 0:
        return f"The quota is used up: calls are blocked for {away(one.quota.end, one.read_at)}."
    if one.state is BreakerState.OPEN:
        wait = away(one.reopens_at, one.read_at) if one.reopens_at else "a moment"
        why = one.opened_by or f"{one.failures:,} consecutive failures"
        return f"Open after {why}: calls are blocked; next probe in {wait}."
    if one.state is BreakerState.HALF_OPEN:
        return (
            "Half open: the next calls probe the provider. If they succeed the breaker closes, if one fails it opens."
        )
    if one.cooldown_until:
        return f"The provider requested a pause: calls wait for {away(one.cooldown_until, one.read_at)}."
    return "Closed: calls are allowed."


def address(page: str, key: int | None) -> str:
    """The page of a row; empty where there is none."""
    return reverse(f"ergon:{page}_change", args=[key]) if key else ""


def attempts_address(who: Who, **more: Any) -> str:
    named = {"provider": who.provider_name} if who.is_account else _named(who)
    return _list("providerexecutionmetric_changelist", **named, **more)


def events_address(who: Who) -> str:
    return _list("providerevent_changelist", **_named(who))


def correlation_address(correlation_id: str) -> str:
    return _list("providerexecutionmetric_changelist", correlation=correlation_id)


def waiting_address(who: Who) -> str:
    """The list of the tasks that wait for a capability."""
    waits_for = f"{who.provider_name}/{who.capability}"
    return _list("taskexecution_changelist", tenant=who.tenant_id, waits_for=waits_for)


def new_policy_address(who: Who) -> str:
    return _list("providerpolicyrow_add", provider_name=who.provider_name, capability=who.capability)


def _named(who: Who) -> dict[str, str]:
    return {"tenant": who.tenant_id, "provider": who.provider_name, "capability": who.capability}


def _list(page: str, **asked: Any) -> str:
    return f"{reverse(f'ergon:providers_{page}')}?{urlencode(asked)}"
