"""Capabilities of providers: breaker, rates, quota and pauses of each, and what a person can do about them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from unfold.decorators import display

from engines.core.explanation import span
from ergon_site.access import minutes
from ergon_site.access.buttons import bar, button
from ergon_site.access.core.roles import Right
from ergon_site.access.lists import tag, two_lines, unbroken
from ergon_site.access.models import AuditEntry
from ergon_site.access.pages import holds
from providers.admin import amounts, links
from providers.admin.gate_changes import GateChanges
from providers.admin.lists import CAPABILITY, PROVIDER, TENANT, offered
from providers.core.breaker import BreakerState
from providers.models import Gate, ProviderExecutionMetric, ProviderPolicyRow
from providers.reads import health, lists
from providers.reads.health import Standing

SHOWN = 10
AT_ONCE = 500
# Often enough asked for that it must be quick: the list behind it counts further.
COUNTED = 1_000
ENDS = {"ok": "succeeded", "bad": "failed", "refused": "refused"}
SAYS = {BreakerState.CLOSED: "done", BreakerState.HALF_OPEN: "paused", BreakerState.OPEN: "failed"}
QUOTAS = {"near": "80 % used or more", "spent": "used up", "none": "no quota"}
KINDS = {"closed": "good", "half open": "warning", "open": "bad", "forced": "warning", "pause": "warning"}


def tags(one: Standing) -> str:
    """The effective state, and whether somebody forced it or the provider asked for a pause."""
    extra = ["forced"] if one.override else []
    extra += ["pause"] if one.cooldown_until else []
    words = [tag(word, KINDS) for word in (one.state.value.replace("_", " "), *extra)]
    return format_html("{} {} {}", *words, *[""] * (3 - len(words)))


def why(one: Standing) -> str:
    if one.override:
        until = f"{amounts.away(one.override_until, one.read_at)} more" if one.override_until else "until reset"
        return f"by {one.override_by}, {until}: {one.override_reason}"
    told = []
    if one.reopens_at:
        told.append(f"probed in {amounts.away(one.reopens_at, one.read_at)}")
    elif one.failures:
        told.append(f"{one.failures:,} failure{'s' if one.failures > 1 else ''} in a row")
    if one.cooldown_until:
        told.append(f"paused for {amounts.away(one.cooldown_until, one.read_at)}")
    return ", ".join(told)


COLUMNS: Mapping[str, Callable[[Standing], Any]] = {
    "tenant_id": attrgetter("who.tenant_id"),
    "provider_name": attrgetter("who.provider_name"),
    "capability": attrgetter("who.capability"),
    "state": attrgetter("state.value"),
    "consecutive_failures": attrgetter("failures"),
    "reopens_at": attrgetter("reopens_at"),
    "cooldown_until": attrgetter("cooldown_until"),
    "success_rate_1h": attrgetter("rates.success"),
    "execution_rate_1h": attrgetter("rates.execution"),
    "p95_latency_ms_1h": attrgetter("rates.p95"),
    "attempts_1h": attrgetter("rates.attempts"),
    "refusals_1h": attrgetter("rates.refusals"),
    "quota_limit": lambda one: one.quota and one.quota.limit,
    "used": lambda one: one.quota and one.quota.used,
    "last_error_code": lambda one: one.health and one.health.last_error_code,
    "last_error_at": lambda one: one.health and one.health.last_error_at,
    "override": attrgetter("override"),
    "override_until": attrgetter("override_until"),
    "override_by": attrgetter("override_by"),
    "override_reason": attrgetter("override_reason"),
}


def live(row: Gate) -> dict[str, Any]:
    """The part of a capability's page that refreshes itself."""
    stand = health.of_gates([row])[0]
    newest = ProviderExecutionMetric.objects.filter(**stand.who._asdict())
    policies = ProviderPolicyRow.objects.select_related("active")
    return {
        "standing": stand,
        "tags": tags(stand),
        "sentence": sentence(stand),
        "says": SAYS[stand.state],
        "figures": list(_figures(stand)),
        "quota": amounts.quota(stand.quota),
        "chart": minutes.minute_chart(health.minutes(row.pk, stand.read_at), "Attempts in each minute", ENDS),
        "waiting": _waiting(stand),
        "recent": [amounts.attempt(one) for one in newest.order_by("-created_at", "-id")[:SHOWN]],
        "attempts_address": links.attempts(stand.who),
        "policy": policies.filter(provider_name=row.provider_name, capability=row.capability).first(),
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
    rows = lists.preview_rescheduled(one.who, one.read_at, shown=SHOWN)
    many = lists.rescheduled(one.who, one.read_at)[: COUNTED + 1].count() if len(rows) == SHOWN else len(rows)
    return {
        "count": f"{COUNTED:,}+" if many > COUNTED else f"{many:,}",
        "address": links.waiting(one.who),
        "rows": [
            {"row": row, "address": links.task(row.pk), "since": span((one.read_at - row.first_at).total_seconds())}
            for row in rows
        ],
    }


@admin.register(Gate)
class GatesPage(GateChanges):
    """Each number leads to the attempts behind it."""

    looked_for = staticmethod(lists.gates)
    detail_template = "console/provider.html"
    new_title = "Set quota"
    empty_text = "Capabilities are listed after their first call, or once they have a quota."
    list_display: ClassVar = ("name", "breaker", "rate", "latency", "quota", "last_error")
    list_filter: ClassVar = [offered("breaker"), offered("quota", QUOTAS), TENANT, PROVIDER, CAPABILITY]
    search_help_text = "A tenant, provider or capability"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = COLUMNS

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.live_view)
        return [path("<path:object_id>/live/", view, name="providers_gate_live"), *super().get_urls()]

    def exported(self, rows: QuerySet[Any]) -> Iterator[tuple[Any, ...]]:
        gates = rows.iterator(chunk_size=AT_ONCE)
        while some := list(islice(gates, AT_ONCE)):
            for one in health.of_gates(some):
                yield tuple(tell(one) for tell in COLUMNS.values())

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        for row, stand in zip(rows, health.of_gates(rows), strict=True):
            row.standing = stand
        return rows

    @display(description="capability")
    def name(self, row: Any) -> str:
        return two_lines(f"{row.provider_name} {row.capability}", amounts.tenant(row.tenant_id))

    @display(description="breaker")
    def breaker(self, row: Any) -> str:
        return format_html(
            '<div class="ergon-cell">{}<div class="ergon-why">{}</div></div>', tags(row.standing), why(row.standing)
        )

    @display(description="success (1 h)")
    def rate(self, row: Any) -> str:
        one: Standing = row.standing
        told = amounts.share(one.rates.success)
        if one.rates.success is None:
            return told
        return unbroken(format_html('<a class="ergon-link" href="{}">{}</a>', links.attempts(one.who), told))

    @display(description="p95 (1 h)")
    def latency(self, row: Any) -> str:
        return unbroken(amounts.milliseconds(row.standing.rates.p95))

    @display(description="quota")
    def quota(self, row: Any) -> str:
        return amounts.quota(row.standing.quota)

    @display(description="last error")
    def last_error(self, row: Any) -> str:
        known = row.standing.health
        if known is None or known.last_error_code is None:
            return amounts.UNKNOWN
        at = f"{known.last_error_at:%Y-%m-%d %H:%M:%S}" if known.last_error_at else amounts.UNKNOWN
        return two_lines(known.last_error_code, at)

    def details(self, request: HttpRequest, row: Gate) -> dict[str, Any]:
        address = {name: reverse(f"admin:providers_gate_{name}", args=[row.pk]) for name in self.actions_detail}
        buttons = [
            button(request, "Reset", address["reset"], right=Right.OPERATE),
            button(request, "Force open", address["force_open"], right=Right.LEAD),
            button(request, "Force closed", address["force_close"], right=Right.LEAD),
            button(request, "Set quota", address["set_quota"], right=Right.LEAD, is_dialog=False),
        ]
        if row.is_limited:
            buttons.append(button(request, "Remove quota", address["drop_quota"], right=Right.LEAD))
        # For all who may see the gate.
        entries = AuditEntry.objects.filter(target=str(row)[:300]).order_by("-at", "-id")
        history = {"history": list(entries[:SHOWN]), "may_audit": holds(request, Right.AUDIT)}
        return {"bar": bar(*buttons), **history, **live(row)}

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return TemplateResponse(request, "console/provider_live.html", live(self.row(request, object_id)))
