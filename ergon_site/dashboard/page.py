"""The context of the dashboard."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet, TextField, Value
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from engines.conf import settings as engine_settings
from engines.models import Pipeline
from engines.reads import dashboard, old_snapshots
from engines.reads.dashboard import Pulse
from engines.reads.old_snapshots import Holder
from ergon_site.access import clients
from ergon_site.access.console.pages import holds
from ergon_site.access.core.roles import Right
from ergon_site.access.models import AuditEntry
from ergon_site.dashboard import charts, engines
from ergon_site.dashboard.attention import SHOWN_OF_A_KIND, Concern, capped

HAS_FACTS, HAS_PROVIDERS = apps.is_installed("facts"), apps.is_installed("providers")
if HAS_FACTS:
    from ergon_site.dashboard import facts
    from facts.conf import settings as fact_settings
if HAS_PROVIDERS:
    from ergon_site.dashboard import providers

EXPIRY_NOTICE = timedelta(days=14)
RECENT = 8


def page_context(request: HttpRequest) -> dict[str, Any]:
    now = timezone.now()
    shown = {"has_role": holds(request, Right.VIEW), "read_at": now}
    if not shown["has_role"]:
        return shown
    span = request.GET.get("span", "")
    minutes, size = charts.SPANS[span if span in charts.SPANS else "hour"]
    taken = dashboard.take(now, minutes=minutes, shown=SHOWN_OF_A_KIND)
    concerns = list(_concerns(request, taken, now))
    return shown | {
        "concerns": concerns,
        "concern_count": sum(concern.count for concern in concerns),
        "figures": [_figure(*one) for one in engines.figures(taken)],
        "ground": _ground(),
        "charts": [*charts.charts_of(taken.series, size), *charts.of_waiting(taken.samples, size)],
        "backlog": charts.backlog(taken),
        "crew": engines.crew(taken, now),
        "unshown_crew": max(0, len(taken.workers) - engines.SHOWN_WORKERS),
        "span": "day" if minutes > engines.LAST_HOUR else "hour",
        "begins_at": taken.series[0]["minute"],
        "recent": AuditEntry.objects.all()[:RECENT] if holds(request, Right.AUDIT) else None,
    }


def _concerns(request: HttpRequest, taken: Pulse, now: datetime) -> Iterator[Concern]:
    is_administrator = holds(request, Right.ADMINISTER)
    told = _attention_rows(now, is_administrator=is_administrator)
    yield from engines.concerns(taken, now)
    if HAS_PROVIDERS:
        yield from providers.concerns((text for kind, _, text in told if kind == "provider"), now)
    if HAS_FACTS:
        yield from facts.concerns()
    holders = (Holder(**one) for kind, _, text in told if kind == "snapshots" for one in json.loads(text))
    snapshots = (
        Concern(
            title=holder.title,
            detail=f"{holder.detail.capitalize()}. Claims get slower meanwhile: {holder.remedy}",
            address=reverse("ergon:index"),
        )
        for holder in holders
    )
    yield from capped(snapshots, reverse("ergon:index"))
    if is_administrator:
        expiring = (
            Concern(
                title=f"The last token of {name} expires soon",
                detail=f"Within {EXPIRY_NOTICE.days} days its calls will be refused. Issue a new token.",
                address=reverse("ergon:access_apiclient_change", args=[key]),
            )
            for kind, key, name in told
            if kind == "client"
        )
        yield from capped(expiring, reverse("ergon:access_apiclient_changelist"))
        without_role = (
            Concern(
                title=f"{name} can log in but has no role",
                detail="Without a role the console shows them nothing.",
                address=reverse("ergon:auth_user_change", args=[key]),
            )
            for kind, key, name in told
            if kind == "person"
        )
        if not User._meta.swapped:  # noqa: SLF001 (a project with users of its own has their pages, too)
            yield from capped(without_role, reverse("ergon:auth_user_changelist"))


def _attention_rows(now: datetime, *, is_administrator: bool) -> list[tuple[str, int, str]]:
    """Attention items from one statement, as kind, key and name.

    Provider faults and old snapshots; for administrators also expiring clients and people without a role.
    """
    parts: list[QuerySet[Any, Any]] = [providers.rows(now)] if HAS_PROVIDERS else []
    if connection.vendor == "postgresql":
        statement, parameters = old_snapshots.as_json(most=2 * SHOWN_OF_A_KIND)
        holders = RawSQL(statement, parameters, output_field=TextField())  # noqa: S611 (our own)
        # A statement of Django's is about a table. Where there is no pipeline, there are no claims to slow down.
        one_row = Pipeline.objects.filter(pk__in=Pipeline.objects.order_by("pk").values("pk")[:1]).order_by()
        parts.append(one_row.annotate(kind=Value("snapshots"), row=holders).values_list("kind", "pk", "row"))
    if is_administrator:
        has_role = Exists(Group.objects.filter(user=OuterRef("pk")))
        expiring = clients.expiring(EXPIRY_NOTICE).order_by()
        parts.append(expiring.annotate(kind=Value("client")).values_list("kind", "pk", "name"))
        if not User._meta.swapped:  # noqa: SLF001 (a project with users of its own has their pages, too)
            people = User.objects.filter(~has_role, is_active=True, is_staff=True, is_superuser=False).order_by()
            parts.append(people.annotate(kind=Value("person")).values_list("kind", "pk", "username"))
    return sorted(parts[0].union(*parts[1:], all=True) if len(parts) > 1 else parts[0] if parts else [])


def _ground() -> list[dict[str, Any]]:
    """Zone, database, broker and telemetry of this deployment."""
    version, broker = connection.get_database_version(), "none: tasks run in the calling process"
    if (address := engine_settings().broker_url) is not None:
        broker = "RabbitMQ" if address.startswith("amqp") else "Redis or Valkey"
    return [
        *([_figure("Zone", fact_settings().zone)] if HAS_FACTS else []),
        _figure("Database", f"{connection.display_name} {'.'.join(str(part) for part in version)}"),
        _figure("Broker", broker),
        _figure("Traces", "exported over OTLP" if getattr(settings, "OTLP_TRACES", False) else "off"),
    ]


def _figure(title: str, value: object, address: str = "") -> dict[str, Any]:
    return {"title": title, "value": value, "address": address}
