"""The context of a capability's page, and of the part that refreshes itself."""

from collections.abc import Iterator
from typing import Any

from engines.core.explanation import span
from ergon_site.access import minutes
from providers import rescheduled
from providers.admin import amounts, links
from providers.admin.gate_list import tags
from providers.core.breaker import BreakerState
from providers.models import Gate, ProviderExecutionMetric, ProviderPolicyRow
from providers.reads import health
from providers.reads.health import Standing

RECENT = 10
# Often enough asked for that it must be quick: the list behind it counts further.
COUNTED = 1_000
ENDS = {"ok": "succeeded", "bad": "failed", "refused": "refused"}
SAYS = {BreakerState.CLOSED: "done", BreakerState.HALF_OPEN: "paused", BreakerState.OPEN: "failed"}


def live(row: Gate) -> dict[str, Any]:
    """The part of a capability's page that refreshes itself."""
    stand = health.of_gates([row])[0]
    return {
        "standing": stand,
        "tags": tags(stand),
        "sentence": sentence(stand),
        "says": SAYS[stand.state],
        "figures": list(_figures(stand)),
        "quota": amounts.quota(stand.quota),
        "chart": minutes.of(health.minutes(row.pk, stand.read_at), "Attempts in each minute", ENDS),
        "waiting": _waiting(stand),
        "recent": [_recent(one) for one in _newest(stand)],
        "attempts_address": links.attempts(stand.who),
        "policy": ProviderPolicyRow.objects.select_related("active")
        .filter(provider_name=row.provider_name, capability=row.capability)
        .first(),
        "new_policy_address": links.new_policy(stand.who),
        "read_at": stand.read_at,
    }


def sentence(one: Standing) -> str:
    """The one thing to know."""
    if one.override:
        until = (
            f"for {amounts.away(one.override_until, one.read_at)} more" if one.override_until else "until it is reset"
        )
        passes = (
            "all calls are blocked"
            if one.state is BreakerState.OPEN
            else "calls are allowed, whatever the state of the breaker"
        )
        return f"Forced {one.override} by {one.override_by}, {until}: {passes}."
    if one.quota and one.quota.remaining == 0:
        return f"The quota is used up: calls are blocked for {amounts.away(one.quota.end, one.read_at)}."
    if one.state is BreakerState.OPEN:
        wait = amounts.away(one.reopens_at, one.read_at) if one.reopens_at else "a moment"
        return f"Open after {one.failures:,} consecutive failures: calls are blocked; next probe in {wait}."
    if one.state is BreakerState.HALF_OPEN:
        return (
            "Half open: the next calls probe the provider. If they succeed the breaker closes, if one fails it opens."
        )
    if one.cooldown_until:
        return f"The provider requested a pause: calls wait for {amounts.away(one.cooldown_until, one.read_at)}."
    return "Closed: calls are allowed."


def _figures(one: Standing) -> Iterator[dict[str, str]]:
    rates, all_of_them = one.rates, links.attempts(one.who)
    failed = links.attempts(one.who, outcome="failed")
    for title, value, address in (
        ("Attempts, last hour", f"{rates.attempts:,}", all_of_them),
        ("Refused, last hour", f"{rates.refusals:,}", failed),
        ("Success rate of attempts", amounts.share(rates.success), all_of_them),
        ("Success rate of executions", amounts.share(rates.execution), all_of_them),
        ("p95 of attempts", amounts.milliseconds(rates.p95), all_of_them),
    ):
        yield {"title": title, "value": value, "address": "" if value == amounts.UNKNOWN else address}


def _waiting(one: Standing) -> dict[str, Any]:
    """The tasks that were sent away and will come back, with how many there are."""
    rows = rescheduled.preview(one.who, one.read_at, shown=RECENT)
    many = rescheduled.waiting(one.who, one.read_at)[: COUNTED + 1].count() if len(rows) == RECENT else len(rows)
    return {
        "count": f"{COUNTED:,}+" if many > COUNTED else f"{many:,}",
        "address": links.waiting(one.who),
        "rows": [
            {"row": row, "address": links.task(row.pk), "since": span((one.read_at - row.first_at).total_seconds())}
            for row in rows
        ],
    }


def _newest(one: Standing) -> list[ProviderExecutionMetric]:
    rows = ProviderExecutionMetric.objects.filter(**one.who._asdict())
    return list(rows.order_by("-created_at", "-id")[:RECENT])


def _recent(row: ProviderExecutionMetric) -> dict[str, Any]:
    return {"row": row, "address": links.attempt(row.pk), "took": amounts.milliseconds(row.duration_ms)}
