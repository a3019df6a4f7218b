"""What the first page says: what needs a person, and what is here at all."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from ergon_site.access import clients
from ergon_site.access.core.roles import Right
from ergon_site.access.models import ApiClient, AuditEntry
from ergon_site.access.pages import holds

EXPIRY_NOTICE = timedelta(days=14)
RECENT = 8
SHOWN_OF_A_KIND = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """Something that waits for a person."""

    title: str
    detail: str
    address: str


def of(request: HttpRequest) -> dict[str, Any]:
    """What the dashboard shows to this person."""
    return {
        "has_role": holds(request, Right.VIEW),
        "concerns": list(_concerns(request)),
        "figures": list(_figures(request)),
        "recent": AuditEntry.objects.all()[:RECENT] if holds(request, Right.AUDIT) else None,
        "read_at": timezone.now(),
    }


def _concerns(request: HttpRequest) -> Iterator[Concern]:
    if holds(request, Right.ADMINISTER):
        yield from _capped(_expiring_clients(), "admin:access_apiclient_changelist")
        yield from _capped(_people_without_role(), "admin:auth_user_changelist")


def _capped(concerns: Iterator[Concern], behind: str) -> Iterator[Concern]:
    """The first few of a kind, and a word on the others."""
    yield from islice(concerns, SHOWN_OF_A_KIND)
    if others := sum(1 for _ in concerns):
        yield Concern(title=f"and {others} more like these", detail="", address=reverse(behind))


def _expiring_clients() -> Iterator[Concern]:
    for client in clients.expiring(EXPIRY_NOTICE):
        yield Concern(
            title=f"The last token of {client} expires soon",
            detail=f"Within {EXPIRY_NOTICE.days} days its calls will be refused. Issue a new token.",
            address=reverse("admin:access_apiclient_change", args=[client.pk]),
        )


def _people_without_role() -> Iterator[Concern]:
    has_role = Exists(Group.objects.filter(user=OuterRef("pk")))
    for person in User.objects.filter(~has_role, is_active=True, is_staff=True, is_superuser=False):
        yield Concern(
            title=f"{person.get_username()} can log in but has no role",
            detail="Until a role is given, the console shows them nothing.",
            address=reverse("admin:auth_user_change", args=[person.pk]),
        )


def _figures(request: HttpRequest) -> Iterator[dict[str, Any]]:
    """Numbers, each with the list behind it, and the ground this deployment stands on."""
    if holds(request, Right.ADMINISTER):
        yield _figure("API clients", ApiClient.objects.count(), reverse("admin:access_apiclient_changelist"))
        people = User.objects.filter(is_active=True).count()
        yield _figure("Active people", people, reverse("admin:auth_user_changelist") + "?is_active__exact=1")
    yield _figure("Zone", settings.ERGON_ZONE)
    yield _figure("Database", _database())
    yield _figure("Broker", _broker())
    yield _figure("Traces", "exported over OTLP" if settings.OTLP_TRACES else "off")


def _figure(title: str, value: object, address: str = "") -> dict[str, Any]:
    return {"title": title, "value": value, "address": address}


def _broker() -> str:
    if settings.CELERY_BROKER_URL is None:
        return "none: tasks run where called"
    return "RabbitMQ" if settings.CELERY_BROKER_URL.startswith("amqp") else "Redis or Valkey"


def _database() -> str:
    version = connection.get_database_version()
    return f"{connection.display_name} {'.'.join(str(part) for part in version)}"
