"""The context of a dead-letter group's page, and the trend that its list shows too."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone

from engines.admin.parts import Act
from engines.core import allowed_actions
from engines.core.states import GroupState
from engines.models import DeadLetterGroup, DeadLetterHour
from engines.reads.dead_letters import list_letters
from ergon_site.access import drawing, keyset
from ergon_site.access.buttons import Button, bar
from ergon_site.access.core.roles import Right

HOURS = 24
SHOWN = 50
BULK = (Act("Replay all", "replay_all", Right.LEAD), Act("Discard all", "discard_all", Right.LEAD))
DECISIONS = {
    Act("Mute", "mute", Right.OPERATE): GroupState.MUTED,
    Act("Resolve", "resolve", Right.OPERATE): GroupState.RESOLVED,
    Act("Reopen", "reopen", Right.OPERATE): GroupState.OPEN,
}


def with_trends(groups: list[DeadLetterGroup]) -> list[Any]:
    """The groups with what came in each of the last hours, by one query for all of them."""
    this_hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    hours = [this_hour - timedelta(hours=HOURS - 1 - place) for place in range(HOURS)]
    rows = DeadLetterHour.objects.filter(group__in=[group.pk for group in groups], hour__gte=hours[0])
    counts = {(row.group_id, row.hour): row.count for row in rows}
    for group in groups:
        group.trend = [counts.get((group.pk, hour), 0) for hour in hours]  # type: ignore[attr-defined]
    return groups


def sparkline(trend: Sequence[int]) -> str:
    label = (
        f"{sum(trend):,} in the last {HOURS} hours, at most {max(trend):,} in one"
        if any(trend)
        else "none in the last 24 hours"
    )
    return render_to_string("console/sparkline.html", {"columns": drawing.columns(trend), "label": label})


def of(request: HttpRequest, group: DeadLetterGroup) -> dict[str, Any]:
    members = keyset.paginate(list_letters({"group": str(group.pk)}), size=SHOWN, at=request.GET.get("at", ""))
    operation = group.operations.order_by("-pk").first()
    is_busy = operation is not None and operation.state in {"running", "paused"}
    return {
        "group": group,
        "spark": sparkline(with_trends([group])[0].trend),
        "members": members,
        "operation": operation,
        "bar": bar(*buttons(request, group, operation.state if operation and is_busy else None)),
    }


def buttons(request: HttpRequest, group: DeadLetterGroup, operation: str | None) -> list[Button]:
    acting, state = allowed_actions.of_acting_on_all(group.open_count, operation), GroupState(group.state)
    deciding = {act: allowed_actions.of_deciding(state, wanted) for act, wanted in DECISIONS.items()}
    return [act.button(request, group, why) for act, why in {**dict.fromkeys(BULK, acting), **deciding}.items()]
