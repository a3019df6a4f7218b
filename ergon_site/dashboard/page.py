"""The context of the dashboard: attention items, figures, status lines, recent activity."""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from engines.conf import settings as engine_settings
from ergon_site.access.console.buttons import Button, bar, button
from ergon_site.access.console.pages import holds
from ergon_site.access.console.targets import addresses
from ergon_site.access.core.attention import Entry, Item, Others, shorten
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import page_time
from ergon_site.access.models import AuditEntry
from ergon_site.dashboard import attention, badges, charts, engines, reading
from ergon_site.dashboard.attention import SHOWN_OF_A_KIND, Link, clock
from ergon_site.dashboard.reading import HAS_FACTS, Reading

if HAS_FACTS:
    from facts.conf import settings as fact_settings

RECENT = 8
HOURS = 2 * engines.LAST_HOUR
OTHERS = {"group": "kinds of failure"}


def page_context(request: HttpRequest) -> dict[str, Any]:
    now = page_time()
    shown = {"has_role": holds(request, Right.VIEW), "read_at": now}
    if not shown["has_role"]:
        return shown
    found = reading.read(now, minutes=HOURS, is_administrator=holds(request, Right.ADMINISTER))
    badges.remember(request, found)
    taken = found.pulse
    return shown | {
        **_attention(request, found, now),
        "figures": list(engines.figures(taken)),
        "statuses": found.statuses,
        "ground": _ground(),
        "backlog": charts.backlog(taken),
        "crew": engines.crew(taken, now),
        "unshown_crew": max(0, len(taken.workers) - engines.SHOWN_WORKERS),
        "recent": _recent(request) if holds(request, Right.AUDIT) else None,
    }


def _attention(request: HttpRequest, found: Reading, now: datetime) -> dict[str, Any]:
    """The list of attention items with their buttons, and each reason why one is disabled once."""
    behind = {one.kind: one.shown.behind for entry in found.board.entries for one in entry.items if one.shown.behind}
    behind.setdefault("group", attention.page("engines_deadlettergroup_changelist"))
    shown = [
        _entry(request, one, now)
        if isinstance(one, Entry)
        else _others(one, behind[one.kind], is_capped=one.kind in found.capped)
        for one in shorten(found.board.entries, SHOWN_OF_A_KIND, found.unread)
    ]
    folded = [_entry(request, one, now) for one in found.board.acknowledged]
    pressed = [one for entry in (*shown, *folded) for one in entry.get("buttons", ())]
    return {
        "concerns": shown,
        "acknowledged": folded,
        "concern_count": found.count,
        "concern_total": f"{found.count:,}{found.more}",
        "refusals": bar(*pressed)["refusals"],
    }


def _entry(request: HttpRequest, entry: Entry, now: datetime) -> dict[str, Any]:
    word = entry.acknowledged
    act, title = ("withdraw", "Show again") if word else ("acknowledge", "Acknowledge")
    key = word.key if word else entry.item.key
    address = f"{reverse(f'ergon:attention_{act}')}?{urlencode({'key': key})}"
    own = button(request, title, address, right=Right.OPERATE)
    listed = entry.consequences[:SHOWN_OF_A_KIND]
    parts = [_item(request, one, now) for one in listed]
    top = _item(request, entry.item, now)
    return {
        **top,
        "buttons": [*top["buttons"], own, *(one for part in parts for one in part["buttons"])],
        "own_buttons": [*top["buttons"], own],
        "severity": entry.severity.word,
        "summary": entry.summary,
        "consequences": parts,
        "unlisted": len(entry.consequences) - len(listed),
        "acknowledged": word,
    }


def _item(request: HttpRequest, item: Item, now: datetime) -> dict[str, Any]:
    buttons: list[Button] = [act.button(request) for act in item.shown.acts]
    since = clock(item.since, now) if item.since else ""
    told = {"title": item.title, "detail": item.detail, "since": since, "since_at": item.since}
    return {**told, "address": item.shown.address, "buttons": buttons}


def _others(others: Others, address: Link, *, is_capped: bool) -> dict[str, Any]:
    kinds = OTHERS.get(others.kind, "like these")
    name = kinds.replace("kinds", "kind") if others.count == 1 else kinds
    return {"title": f"and {others.count:,}{'+' if is_capped else ''} more {name}", "address": address, "is_rest": True}


def _recent(request: HttpRequest) -> list[dict[str, Any]]:
    entries = list(AuditEntry.objects.all()[:RECENT])
    found = addresses(request, {entry.target for entry in entries})
    return [{"entry": entry, "address": found.get(entry.target, "")} for entry in entries]


def _ground() -> list[dict[str, Any]]:
    """Zone, database, broker and telemetry of this deployment."""
    version, broker = connection.get_database_version(), "none: tasks run in the calling process"
    if (address := engine_settings().broker_url) is not None:
        broker = "RabbitMQ" if address.startswith("amqp") else "Redis or Valkey"
    return [
        *([_fact("Zone", fact_settings().zone)] if HAS_FACTS else []),
        _fact("Database", f"{connection.display_name} {'.'.join(str(part) for part in version)}"),
        _fact("Broker", broker),
        _fact("Traces", "exported over OTLP" if getattr(settings, "OTLP_TRACES", False) else "off"),
    ]


def _fact(title: str, value: object, address: str = "") -> dict[str, Any]:
    return {"title": title, "value": value, "address": address}
