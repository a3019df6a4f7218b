"""The context of the dashboard."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet, TextField, Value
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from engines.models import Pipeline
from engines.reads import dashboard, old_snapshots
from engines.reads.dashboard import Pulse
from engines.reads.old_snapshots import Holder
from ergon_site.access import clients
from ergon_site.access.console.pages import holds
from ergon_site.access.core.roles import Right
from ergon_site.access.models import AuditEntry
from ergon_site.dashboard import charts, engines, facts, providers
from ergon_site.dashboard.attention import SHOWN_OF_A_KIND, Concern, capped

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
    yield from providers.concerns((text for kind, _, text in told if kind == "provider"), now)
    yield from facts.concerns()
    holders = (Holder(**one) for kind, _, text in told if kind == "snapshots" for one in json.loads(text))
    snapshots = (
        Concern(
            title=holder.title,
            detail=f"{holder.detail.capitalize()}. Claims get slower meanwhile: {holder.remedy}",
            address=reverse("admin:index"),
        )
        for holder in holders
    )
    yield from capped(snapshots, reverse("admin:index"))
    if is_administrator:
        expiring = (
            Concern(
                title=f"The last token of {name} expires soon",
                detail=f"Within {EXPIRY_NOTICE.days} days its calls will be refused. Issue a new token.",
                address=reverse("admin:access_apiclient_change", args=[key]),
            )
            for kind, key, name in told
            if kind == "client"
        )
        yield from capped(expiring, reverse("admin:access_apiclient_changelist"))
        without_role = (
            Concern(
                title=f"{name} can log in but has no role",
                detail="Without a role the console shows them nothing.",
                address=reverse("admin:auth_user_change", args=[key]),
            )
            for kind, key, name in told
            if kind == "person"
        )
        yield from capped(without_role, reverse("admin:auth_user_changelist"))


def _attention_rows(now: datetime, *, is_administrator: bool) -> list[tuple[str, int, str]]:
    """Attention items from one statement, as kind, key and name.

    Provider faults and old snapshots; for administrators also expiring clients and people without a role.
    """
    others: list[QuerySet[Any, Any]] = []
    if connection.vendor == "postgresql":
        statement, parameters = old_snapshots.as_json(most=2 * SHOWN_OF_A_KIND)
        holders = RawSQL(statement, parameters, output_field=TextField())  # noqa: S611 (our own)
        # A statement of Django's is about a table. Where there is no pipeline, there are no claims to slow down.
        one_row = Pipeline.objects.filter(pk__in=Pipeline.objects.order_by("pk").values("pk")[:1]).order_by()
        others.append(one_row.annotate(kind=Value("snapshots"), row=holders).values_list("kind", "pk", "row"))
    if is_administrator:
        has_role = Exists(Group.objects.filter(user=OuterRef("pk")))
        people = User.objects.filter(~has_role, is_active=True, is_staff=True, is_superuser=False).order_by()
        expiring = clients.expiring(EXPIRY_NOTICE).order_by()
        others.append(expiring.annotate(kind=Value("client")).values_list("kind", "pk", "name"))
        others.append(people.annotate(kind=Value("person")).values_list("kind", "pk", "username"))
    rows = providers.rows(now)
    return sorted(rows.union(*others, all=True) if others else rows)


def _ground() -> list[dict[str, Any]]:
    """Zone, database, broker and telemetry of this deployment."""
    version, broker = connection.get_database_version(), "none: tasks run in the calling process"
    if settings.CELERY_BROKER_URL is not None:
        broker = "RabbitMQ" if settings.CELERY_BROKER_URL.startswith("amqp") else "Redis or Valkey"
    return [
        _figure("Zone", settings.ERGON_ZONE),
        _figure("Database", f"{connection.display_name} {'.'.join(str(part) for part in version)}"),
        _figure("Broker", broker),
        _figure("Traces", "exported over OTLP" if settings.OTLP_TRACES else "off"),
    ]


def _figure(title: str, value: object, address: str = "") -> dict[str, Any]:
    return {"title": title, "value": value, "address": address}
