"""Capabilities of providers: breaker, rates, quota and pauses of each, and what a person can do about them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib import messages
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from unfold.decorators import action

from ergon_site.access.console.buttons import bar, button
from ergon_site.access.console.cells import UNKNOWN, column, measured, milliseconds, with_note
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.pages import ReasonForm, actor, done, holds, registered
from ergon_site.access.console.palette import MOST, Deed, Found
from ergon_site.access.core.durations import span
from ergon_site.access.core.roles import Right
from ergon_site.access.models import AuditEntry
from providers import calls
from providers.admin import cells
from providers.admin.forms import EditQuotaForm, ForceForm, NewQuotaForm
from providers.admin.lists import CAPABILITY, PROVIDER, TENANT, KeysetDetailPage, offered
from providers.calls import OrderError
from providers.core.exchange import Who
from providers.core.gate import EVERY
from providers.models import CachedAnswer, Gate, ProviderEvent, ProviderExecutionMetric, ProviderPolicyRow
from providers.reads import health, lists
from providers.reads.health import Standing

SHOWN = 10
AT_ONCE = 500
# Often enough asked for that it must be quick: the list behind it counts further.
COUNTED = 1_000
STOOD_IN = {"cache": "Cache hits, last hour", "stale": "Stale answers", "fallback": "Fallbacks"}
QUOTAS = {"near": "80 % used or more", "spent": "used up", "none": "no quota"}


RESET = {
    "title": "Reset the breaker",
    "description": "Closes the breaker, ends overrides and pauses and refills the retry budget, in all processes.",
}
OPEN = {
    "title": "Force the breaker open",
    "description": "All calls are blocked, whatever the state of the breaker.",
    "form_class": ForceForm,
    "keep": "Leave it as it is",
}
STOP_ALL = {
    "title": "Stop the provider for all tenants",
    "description": "All calls of this provider are blocked, for every tenant that shares the account.",
    "form_class": ForceForm,
    "keep": "Leave it as it is",
}
CLOSE = {
    "title": "Force the breaker closed",
    "description": "Calls are allowed, whatever the state of the breaker. Quotas and pauses still apply.",
    "form_class": ForceForm,
}
FORGET = {
    "title": "Drop cached answers",
    "description": "Kept answers are deleted: the next calls ask the provider.",
    "keep": "Keep them",
}
DROP = {
    "title": "Remove quota",
    "description": "Calls are no longer limited. Recorded usage is kept.",
    "keep": "Keep it",
}
SET: dict[str, Any] = {
    "submit_text": "Set quota",
    "intro": "Usage of the current window is kept. A different window length starts a new window.",
}
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
    "cache_hits_1h": attrgetter("rates.cache_hits"),
    "stale_answers_1h": attrgetter("rates.stale_answers"),
    "fallbacks_1h": attrgetter("rates.fallbacks"),
    "quota_limit": lambda one: one.quota and one.quota.limit,
    "used": lambda one: one.quota and one.quota.used,
    "last_error_code": lambda one: one.health and one.health.last_error_code,
    "last_error_at": lambda one: one.health and one.health.last_error_at,
    "override": attrgetter("override"),
    "override_until": attrgetter("override_until"),
    "override_by": attrgetter("override_by"),
    "override_reason": attrgetter("override_reason"),
}


def _figures(one: Standing) -> Iterator[dict[str, str]]:
    rates, all_of_them = one.rates, cells.attempts_address(one.who)
    failed = cells.attempts_address(one.who, outcome="failed")
    for title, value, address in (
        ("Attempts, last hour", f"{rates.attempts:,}", all_of_them),
        ("Refused, last hour", f"{rates.refusals:,}", failed),
        ("Success rate of attempts", cells.share(rates.success), all_of_them),
        ("Success rate of executions", cells.share(rates.execution), all_of_them),
        ("p95 of attempts", milliseconds(rates.p95), all_of_them),
    ):
        yield {"title": title, "value": value, "address": "" if value == UNKNOWN else address}
    stood_in = {"cache": rates.cache_hits, "stale": rates.stale_answers, "fallback": rates.fallbacks}
    for source, count in stood_in.items():
        if count:
            address = cells.attempts_address(one.who, source=source)
            yield {"title": STOOD_IN[source], "value": f"{count:,}", "address": address}


def _waiting(one: Standing) -> dict[str, Any]:
    """The tasks that were sent away and will come back, with how many there are."""
    rows = lists.preview_rescheduled(one.who, one.read_at, shown=SHOWN)
    many = lists.rescheduled(one.who, one.read_at)[: COUNTED + 1].count() if len(rows) == SHOWN else len(rows)
    return {
        "count": f"{COUNTED:,}+" if many > COUNTED else f"{many:,}",
        "address": cells.waiting_address(one.who),
        "rows": [
            {
                "row": row,
                "address": cells.address("providers_taskexecution", row.pk),
                "since": span((one.read_at - row.first_at).total_seconds()),
            }
            for row in rows
        ],
    }


@registered(Gate)
class GatesPage(KeysetDetailPage):
    """Each number leads to the attempts behind it."""

    edit_right = Right.LEAD
    refused_by = (OrderError,)
    actions_detail = ("reset", "force_open", "force_close", "stop_all", "set_quota", "drop_quota", "drop_answers")
    looked_for = staticmethod(lists.gates)
    detail_template = "console/provider.html"
    live_template = "console/provider_live.html"
    new_title = "Set quota"
    new_form = NewQuotaForm
    empty_text = "Capabilities are listed after their first call, or once they have a quota."
    list_display: ClassVar = ("name", "breaker", "rate", "latency", "quota", "last_error")
    list_filter: ClassVar = [offered("breaker", kind="breaker"), offered("quota", QUOTAS), TENANT, PROVIDER, CAPABILITY]
    deeds = (Deed("Reset", "reset", Right.OPERATE),)
    search_help_text = "A tenant, provider or capability"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = COLUMNS

    def find(self, request: HttpRequest, text: str) -> Iterator[Found]:
        for gate in lists.find_gates(text, MOST):
            yield Found(f"{gate.provider_name}/{gate.capability}", gate.tenant_id, self.address(gate.pk), gate.pk)

    def exported(self, rows: QuerySet[Any]) -> Iterator[tuple[Any, ...]]:
        gates = rows.iterator(chunk_size=AT_ONCE)
        while some := list(islice(gates, AT_ONCE)):
            for one in health.of_gates(some):
                yield tuple(tell(one) for tell in COLUMNS.values())

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        for row, stand in zip(rows, health.of_gates(rows), strict=True):
            row.standing = stand
        return rows

    name = column("capability", lambda row: cells.whose(row.who))
    breaker = column("breaker", lambda row: with_note(cells.tags(row.standing), cells.why(row.standing)))

    rate = column("success (1 h)", lambda row: cells.success(row.standing))
    latency = column("p95 (1 h)", lambda row: measured(milliseconds(row.standing.rates.p95)))
    quota = column("quota", lambda row: cells.quota(row.standing.quota))
    last_error = column("last error", lambda row: cells.last_error(row.standing.health))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Gate]:
        rows: QuerySet[Gate] = super().get_queryset(request)
        same = {name: OuterRef(name) for name in Who._fields}
        return rows.annotate(has_answers=Exists(CachedAnswer.objects.filter(**same)))

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        address = {name: reverse(f"ergon:providers_gate_{name}", args=[row.pk]) for name in self.actions_detail}
        buttons = [
            button(request, "Reset", address["reset"], right=Right.OPERATE),
            button(request, "Force open", address["force_open"], right=Right.LEAD),
            button(request, "Force closed", address["force_close"], right=Right.LEAD),
            button(request, "Set quota", address["set_quota"], right=Right.LEAD, is_dialog=False),
        ]
        if not row.who.is_account:
            buttons.insert(3, button(request, "Stop for all", address["stop_all"], right=Right.LEAD))
        if row.is_limited:
            buttons.append(button(request, "Remove quota", address["drop_quota"], right=Right.LEAD))
        if row.has_answers:
            buttons.append(button(request, "Drop cached answers", address["drop_answers"], right=Right.OPERATE))
        # For all who may see the gate.
        entries = AuditEntry.objects.filter(target=str(row)[:300]).order_by("-at", "-id")
        history = {"history": list(entries[:SHOWN]), "may_audit": holds(request, Right.AUDIT)}
        return {"bar": bar(*buttons), **history, **self.live(request, row)}

    def live(self, request: HttpRequest, row: Gate) -> dict[str, Any]:
        stand = health.of_gates([row])[0]
        account = stand.account and stand.account.gate
        newest = ProviderExecutionMetric.objects.filter(**stand.who._asdict())
        changes = ProviderEvent.objects.filter(**stand.who._asdict())
        policies = ProviderPolicyRow.objects.select_related("active")
        policy = policies.filter(provider_name=row.provider_name, capability=row.capability).first()
        return {
            "standing": stand,
            "tags": cells.tags(stand),
            "sentence": cells.sentence(stand),
            "account_address": cells.address("providers_gate", account.pk if account else None),
            "figures": list(_figures(stand)),
            "quota": cells.quota(stand.quota),
            "waiting": _waiting(stand),
            "recent": [cells.attempt(one) for one in newest.order_by("-created_at", "-id")[:SHOWN]],
            "attempts_address": cells.attempts_address(stand.who),
            "events": [cells.event(one) for one in changes.order_by("-id")[:SHOWN]],
            "events_address": cells.events_address(stand.who),
            "policy": policy,
            "places": cells.places(stand, policy),
            "new_policy_address": cells.new_policy_address(stand.who),
            "read_at": stand.read_at,
        }

    @dialog_action(description="Reset", url_path="reset", permissions=["operate"], dialog=RESET)
    def reset(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._change(request, form, object_id, calls.reset, "Reset: the breaker is closed.")

    @dialog_action(description="Force open", url_path="force-open", permissions=["lead"], dialog=OPEN)
    def force_open(self, request: HttpRequest, form: ForceForm, object_id: str) -> HttpResponse:
        force = partial(calls.force_open, lasting=form.lasting)
        return self._change(request, form, object_id, force, "Forced open: all calls are blocked.")

    @dialog_action(description="Stop for all", url_path="stop-all", permissions=["lead"], dialog=STOP_ALL)
    def stop_all(self, request: HttpRequest, form: ForceForm, object_id: str) -> HttpResponse:
        row: Gate = self.row(request, object_id)
        account = Who(row.account, row.provider_name, EVERY)
        why = {"by": actor(request), "reason": form.cleaned_data["reason"]}
        gate = calls.force_open(account, lasting=form.lasting, **why)
        messages.success(request, f"Forced open: all calls of {gate} are blocked.")
        return done(self.address(gate.pk))

    @dialog_action(description="Force closed", url_path="force-close", permissions=["lead"], dialog=CLOSE)
    def force_close(self, request: HttpRequest, form: ForceForm, object_id: str) -> HttpResponse:
        force = partial(calls.force_closed, lasting=form.lasting)
        text = "Forced closed: calls are allowed, whatever the state of the breaker."
        return self._change(request, form, object_id, force, text)

    @action(description="Set quota", url_path="quota", permissions=["lead"])
    def set_quota(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row: Gate = self.row(request, object_id)
        form = EditQuotaForm(request.POST or None, row)
        changed = self.attempt(form, lambda: self._set(request, row.who, form.terms()))
        return changed or self.page(request, "console/form.html", f"The quota of {row}", row, form=form, **SET)

    @dialog_action(description="Remove quota", url_path="drop-quota", permissions=["lead"], dialog=DROP)
    def drop_quota(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._change(request, form, object_id, calls.drop_quota, "Quota removed.")

    @dialog_action(description="Drop cached answers", url_path="drop-answers", permissions=["operate"], dialog=FORGET)
    def drop_answers(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._change(request, form, object_id, calls.drop_answers, "Cached answers dropped.")

    def new_context(self, request: HttpRequest) -> dict[str, Any]:
        return SET

    def make(self, request: HttpRequest, form: NewQuotaForm) -> HttpResponse:
        return self._set(request, form.who(), form.terms())

    def _set(self, request: HttpRequest, who: Who, terms: dict[str, Any]) -> HttpResponse:
        calls.set_quota(who, by=actor(request), **terms)
        messages.success(request, f"Set: {terms['limit']:,} calls in every {terms['window']:g} seconds.")
        return redirect(self.address(Gate.objects.values_list("pk", flat=True).get(**who._asdict())))

    def _change(self, request: HttpRequest, form: Any, object_id: str, verb: Any, text: str) -> HttpResponse:
        verb(self.row(request, object_id).who, by=actor(request), reason=form.cleaned_data["reason"])
        messages.success(request, text)
        return done(self.address(object_id))
