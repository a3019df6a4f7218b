"""The context of the dashboard."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from engines.reads import dashboard
from engines.reads.dashboard import Pulse
from ergon_site.access import clients
from ergon_site.access.core.roles import Right
from ergon_site.access.models import AuditEntry
from ergon_site.access.pages import holds
from ergon_site.dashboard import charts, database, engines, facts, providers
from ergon_site.dashboard.attention import SHOWN_OF_A_KIND, Concern, capped

EXPIRY_NOTICE = timedelta(days=14)
RECENT = 8


def page_context(request: HttpRequest) -> dict[str, Any]:
    """The context of the dashboard for this person."""
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
        "ground": list(_ground()),
        "charts": [*charts.charts_of(taken.series, size), *charts.of_waiting(taken.samples, size)],
        "backlog": charts.backlog(taken),
        "crew": engines.crew(taken, now),
        "unshown_crew": max(0, len(taken.workers) - engines.SHOWN_WORKERS),
        "span": "day" if minutes > engines.LAST_HOUR else "hour",
        "begins_at": taken.series[0]["minute"],
        "recent": AuditEntry.objects.all()[:RECENT] if holds(request, Right.AUDIT) else None,
    }


def _concerns(request: HttpRequest, taken: Pulse, now: datetime) -> Iterator[Concern]:
    told = _attention_rows(now, is_administrator=holds(request, Right.ADMINISTER))
    yield from engines.concerns(taken, now)
    yield from providers.concerns((text for kind, _, text in told if kind == "provider"), now)
    yield from facts.concerns()
    yield from database.concerns(text for kind, _, text in told if kind == "snapshots")
    if holds(request, Right.ADMINISTER):
        yield from capped(_expiring_clients(told), reverse("admin:access_apiclient_changelist"))
        yield from capped(_people_without_role(told), reverse("admin:auth_user_changelist"))


def _attention_rows(now: datetime, *, is_administrator: bool) -> list[tuple[str, int, str]]:
    """Attention items from one statement, as kind, key and name.

    Provider faults and old snapshots; for administrators also expiring clients and people without a role.
    """
    others = [*database.rows(), *(_people_and_clients() if is_administrator else ())]
    rows = providers.rows(now)
    return sorted(rows.union(*others, all=True) if others else rows)


def _people_and_clients() -> Iterator[QuerySet[Any, Any]]:
    has_role = Exists(Group.objects.filter(user=OuterRef("pk")))
    people = User.objects.filter(~has_role, is_active=True, is_staff=True, is_superuser=False)
    expiring = clients.expiring(EXPIRY_NOTICE)
    for rows, kind, name in ((expiring, "client", "name"), (people, "person", "username")):
        yield rows.order_by().annotate(kind=Value(kind)).values_list("kind", "pk", name)


def _expiring_clients(told: Iterable[tuple[str, int, str]]) -> Iterator[Concern]:
    for key, name in ((key, name) for kind, key, name in told if kind == "client"):
        yield Concern(
            title=f"The last token of {name} expires soon",
            detail=f"Within {EXPIRY_NOTICE.days} days its calls will be refused. Issue a new token.",
            address=reverse("admin:access_apiclient_change", args=[key]),
        )


def _people_without_role(told: Iterable[tuple[str, int, str]]) -> Iterator[Concern]:
    for key, name in ((key, name) for kind, key, name in told if kind == "person"):
        yield Concern(
            title=f"{name} can log in but has no role",
            detail="Without a role the console shows them nothing.",
            address=reverse("admin:auth_user_change", args=[key]),
        )


def _ground() -> Iterator[dict[str, Any]]:
    """Zone, database, broker and telemetry of this deployment."""
    yield _figure("Zone", settings.ERGON_ZONE)
    yield _figure("Database", _database())
    yield _figure("Broker", _broker())
    yield _figure("Traces", "exported over OTLP" if settings.OTLP_TRACES else "off")


def _figure(title: str, value: object, address: str = "") -> dict[str, Any]:
    return {"title": title, "value": value, "address": address}


def _broker() -> str:
    if settings.CELERY_BROKER_URL is None:
        return "none: tasks run in the calling process"
    return "RabbitMQ" if settings.CELERY_BROKER_URL.startswith("amqp") else "Redis or Valkey"


def _database() -> str:
    version = connection.get_database_version()
    return f"{connection.display_name} {'.'.join(str(part) for part in version)}"
