"""One reading of everything that needs attention, for the dashboard, the sidebar, the API and the command."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet, TextField, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast, JSONObject

from engines.models import Pipeline
from engines.reads import dashboard, old_snapshots
from engines.reads.dashboard import Pulse
from engines.reads.old_snapshots import Holder
from ergon_site.access import acknowledgements, clients
from ergon_site.access.core import attention
from ergon_site.access.core.attention import Acknowledgement, Board, Item, Severity
from ergon_site.access.models import AcknowledgedItem
from ergon_site.dashboard import engines
from ergon_site.dashboard.attention import LONGEST_TITLE, MOST_OF_A_KIND, SHOWN_OF_A_KIND, Face, Link, page

HAS_FACTS, HAS_PROVIDERS = apps.is_installed("facts"), apps.is_installed("providers")
if HAS_FACTS:
    from ergon_site.dashboard import facts
    from facts.reads import health as boundaries
if HAS_PROVIDERS:
    from ergon_site.dashboard import breakers, providers

EXPIRY_NOTICE = timedelta(days=14)
# Of those seen last; the others are counted.
READ_GROUPS = 50


class Status(NamedTuple):
    """An area of the console in one sentence."""

    area: str
    sentence: str
    address: Link
    severity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What needs attention at one moment. `unread` is how many entries of a kind there are beyond the board's."""

    pulse: Pulse
    board: Board
    unread: dict[str, int]
    # Kinds of which there may be more than were read.
    capped: frozenset[str]
    statuses: tuple[Status, ...]

    @property
    def count(self) -> int:
        return len(self.board.entries) + sum(self.unread.values())

    @property
    def more(self) -> str:
        """What is said after a count that is a lower limit."""
        return "+" if self.capped else ""


def read(now: datetime, *, minutes: int = 1, is_administrator: bool) -> Reading:
    pulse = dashboard.take(now, minutes=minutes, shown=READ_GROUPS)
    told = _rows(now, is_administrator=is_administrator)
    found: list[tuple[str, Item]] = []
    causes: dict[int, dict[str, int]] = {}
    statuses: list[tuple[str, str, Link]] = []
    if HAS_PROVIDERS:
        troubles = providers.troubles((text for kind, _, text in told if kind == "provider"), now)
        outages = breakers.outages(troubles)
        causes, waits = breakers.blocked(outages, (json.loads(text) for kind, _, text in told if kind == "tenant"))
        is_capped = len(troubles) >= MOST_OF_A_KIND
        found += [("Providers", one) for one in (*providers.items(outages, is_capped=is_capped), *waits)]
        statuses.append(("Providers", providers.status(troubles), page("providers_gate_changelist")))
    if HAS_FACTS:
        stands = boundaries.of_boundaries()
        found += [("Facts", one) for one in facts.items(stands)]
        statuses.append(("Facts", facts.status(stands), page("facts_boundary_changelist")))
    found += [("Engines", one) for one in engines.items(pulse, now, causes)]
    statuses.insert(0, ("Engines", engines.status(pulse), page("engines_pipeline_changelist")))
    worst = {area: max((one.severity for of, one in found if of == area), default=0) for area, *_ in statuses}
    kinds = Counter(one.kind for _, one in found) | Counter(kind for kind, *_ in told)
    words = [_acknowledgement(text) for kind, _, text in told if kind == "acknowledged"]
    return Reading(
        pulse=pulse,
        board=attention.board([*(one for _, one in found), *_of_the_ground(told)], words, now),
        unread={"group": pulse.open_groups - len(pulse.groups)},
        capped=frozenset(kind for kind in ("provider", "artifact") if kinds[kind] >= MOST_OF_A_KIND),
        statuses=tuple(Status(*one, Severity(worst[one[0]]).word if worst[one[0]] else "calm") for one in statuses),
    )


def _of_the_ground(told: list[tuple[str, int, str]]) -> Iterator[Item]:
    """Items of the database, the API clients and the people."""
    for kind, key, text in told:
        if kind == "snapshots":
            yield from (_holder(Holder(**one)) for one in json.loads(text))
        elif kind == "client":
            yield Item(
                key=f"client:{key}",
                severity=Severity.WARNING,
                title=f"The last token of {text} expires soon",
                detail=f"Within {EXPIRY_NOTICE.days} days its calls will be refused. Issue a new token.",
                shown=Face(address=page("access_apiclient_change", key), behind=page("access_apiclient_changelist")),
            )
        elif kind == "person":
            yield Item(
                key=f"person:{key}",
                severity=Severity.NOTICE,
                title=f"{text} can log in but has no role",
                detail="Without a role the console shows them nothing.",
                shown=Face(address=page("auth_user_change", key), behind=page("auth_user_changelist")),
            )


def _holder(holder: Holder) -> Item:
    return Item(
        key=f"snapshot:{holder.title}"[:LONGEST_TITLE],
        severity=Severity.WARNING,
        title=holder.title,
        detail=f"{holder.detail.capitalize()}. Claims get slower meanwhile: {holder.remedy}",
        shown=Face(address=page("index"), behind=page("index")),
    )


def _acknowledgement(text: str) -> Acknowledgement:
    columns = json.loads(text)
    until = datetime.fromisoformat(columns.pop("until"))
    # SQLite keeps times as texts, in UTC, and truths as numbers.
    at = until if until.tzinfo else until.replace(tzinfo=UTC)
    return Acknowledgement(**{**columns, "is_capped": bool(columns["is_capped"])}, until=at)


def _rows(now: datetime, *, is_administrator: bool) -> list[tuple[str, int, str]]:
    """Attention items from one statement, as kind, key and name.

    Acknowledgements, provider faults and old snapshots; for administrators also expiring clients and people without a
    role.
    """
    word = Cast(JSONObject(**{name: name for name in acknowledgements.COLUMNS}), TextField())
    words: Any = AcknowledgedItem.objects.filter(until__gt=now).order_by()
    parts: list[QuerySet[Any, Any]] = [
        words.annotate(kind=Value("acknowledged"), row=word).values_list("kind", "pk", "row"),
        *([providers.rows(now), breakers.tenants(now)] if HAS_PROVIDERS else []),
    ]
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
    return sorted(parts[0].union(*parts[1:], all=True) if len(parts) > 1 else parts[0])
