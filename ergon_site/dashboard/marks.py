"""What happened meanwhile: policy changes, releases, pauses, breakers and gates, as marks of charts."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from engines.models import Pipeline, Policy
from engines.reads import series
from ergon_site.access.console.pages import holds
from ergon_site.access.core.charts import Mark, Window
from ergon_site.access.core.roles import Right
from ergon_site.access.models import AuditEntry

if TYPE_CHECKING:
    from facts.models import Boundary
    from providers.models import Gate
if apps.is_installed("providers"):
    from providers.models import ProviderPolicyRow
    from providers.reads import series as provider_series

MOST = 50
POLICY = ("policy.write", "policy.activate")
PAUSES = ("pipeline.pause", "pipeline.resume")
GATES = ("boundary.close", "boundary.open")
KINDS = {"policy": "policy", "pause": "pause", "resume": "pause", "close": "pause", "open": "pause"}
DONE = {"pause": "paused", "resume": "resumed", "close": "gate closed", "open": "gate opened"}


def of_engines(request: HttpRequest, window: Window, pipeline: Pipeline | None = None) -> list[Mark]:
    """Of one pipeline and its policy, or of all, then with the breakers of providers."""
    if pipeline is None:
        entries = _entries(window, Q(), POLICY + PAUSES)
        pages = _pages(entries)
    else:
        pages = {
            f"pipeline {pipeline.name}": reverse("ergon:engines_pipeline_change", args=[pipeline.pk]),
            pipeline.policy.target: reverse("ergon:engines_policy_change", args=[pipeline.policy_id]),
        }
        entries = _entries(window, Q(target__in=pages), POLICY + PAUSES)
    marks = [*_decided(request, entries, pages), *_released(window, pipeline)]
    if pipeline is None and apps.is_installed("providers"):
        marks += _opened(window)
    return _newest(marks)


def of_provider(request: HttpRequest, window: Window, gate: "Gate") -> list[Mark]:
    target = ProviderPolicyRow(provider_name=gate.provider_name, capability=gate.capability).target
    entries = _entries(window, Q(target=target), POLICY)
    pages = {target: reverse("ergon:providers_providerpolicyrow_changelist")}
    return _newest([*_decided(request, entries, pages), *_opened(window, gate)])


def of_boundary(request: HttpRequest, window: Window, boundary: "Boundary") -> list[Mark]:
    page = reverse("ergon:facts_boundary_change", args=[boundary.pk])
    target = f"boundary {boundary}"
    marks = list(_decided(request, _entries(window, Q(target=target), GATES), {target: page}))
    if boundary.gate != "normal" and not boundary.gate_by and _is_within(window, boundary.gate_at):
        marks.append(Mark(int(boundary.gate_at.timestamp()), "breaker", f"{boundary}: {boundary.gate}", page))
    return _newest(marks)


def _entries(window: Window, about: Q, actions: Iterable[str]) -> list[AuditEntry]:
    begins, ends = (datetime.fromtimestamp(one, UTC) for one in (window.begins, window.ends))
    entries = AuditEntry.objects.filter(about, action__in=actions, at__gte=begins, at__lt=ends)
    return list(entries.order_by("-at", "-id")[:MOST])


def _pages(entries: Iterable[AuditEntry]) -> dict[str, str]:
    """Where the pipelines and policies of entries are, for those who may not read the entries themselves."""
    targets = {entry.target for entry in entries}
    found: dict[str, str] = {}
    for model, prefix, name in ((Pipeline, "pipeline ", "pipeline"), (Policy, "policy ", "policy")):
        names = {target.removeprefix(prefix) for target in targets if target.startswith(prefix)}
        rows: Any = model.objects.filter(name__in=names).values_list("name", "pk") if names else []
        found |= {f"{prefix}{one}": reverse(f"ergon:engines_{name}_change", args=[pk]) for one, pk in rows}
    return found


def _decided(request: HttpRequest, entries: Iterable[AuditEntry], pages: Mapping[str, str]) -> Iterator[Mark]:
    """Each leads to its entry, or to the page of what was changed, for those who may not read entries."""
    may_audit, nowhere = holds(request, Right.AUDIT), reverse("ergon:index")
    for entry in entries:
        noun, verb = entry.action.split(".")
        version = (entry.after or {}).get("version", "")
        done = f"version {version}" if noun == "policy" else DONE[verb]
        page = pages.get(entry.target, nowhere)
        address = reverse("ergon:access_auditentry_change", args=[entry.pk]) if may_audit else page
        kind = KINDS["policy" if noun == "policy" else verb]
        yield Mark(int(entry.at.timestamp()), kind, f"{entry.target}: {done} by {entry.actor}", address)


def _released(window: Window, pipeline: Pipeline | None) -> Iterator[Mark]:
    for worker in series.releases(window, pipeline.name if pipeline else None):
        address = reverse("ergon:engines_worker_change", args=[worker.pk])
        text = f"release {worker.release} on {worker.host}"
        yield Mark(int(worker.started_at.timestamp()), "deploy", text, address)


def _opened(window: Window, gate: "Gate | None" = None) -> Iterator[Mark]:
    for event in provider_series.openings(window, gate):
        address = reverse("ergon:providers_providerevent_change", args=[event.pk])
        text = f"breaker {event.provider_name}/{event.capability} opened{f': {event.why}' if event.why else ''}"
        yield Mark(int(event.at.timestamp()), "breaker", text[:200], address)


def _newest(marks: Iterable[Mark]) -> list[Mark]:
    return sorted(sorted(marks, reverse=True)[:MOST])


def _is_within(window: Window, at: datetime) -> bool:
    return window.begins <= at.timestamp() < window.ends
