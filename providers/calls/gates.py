"""The gate's row: made when it is first asked for, and its quota shown in the visible table."""

from ergon_site.access.database.clock import database_time
from providers.calls import sql, statements
from providers.core.exchange import Who
from providers.models import Gate, QuotaState


def make(who: Who) -> None:
    """Make the gate of a capability; a quota that somebody wrote for the present window becomes the gate's."""
    now = database_time()
    quota = QuotaState.objects.filter(**who._asdict(), window_start__lte=now, window_end__gt=now)
    row = quota.order_by("-window_start").first()
    gate = Gate(**who._asdict())
    if row is not None:
        gate.quota_limit, gate.used = row.limit_count, row.used_count
        gate.quota_window = (row.window_end - row.window_start).total_seconds()
        gate.window_start, gate.window_end = row.window_start.timestamp(), row.window_end.timestamp()
    Gate.objects.bulk_create([gate], ignore_conflicts=True)


def show_quota(who: Who, *, is_exhausted: bool = False) -> None:
    """Bring the visible state of the present window up to date; and if it was found spent, since when."""
    dialect = sql.dialect()
    named = dict(zip(("tenant", "provider", "capability"), who, strict=True))
    upsert = statements.quota(dialect, is_refusal=True).format(gate=f"({statements.PLAIN_GATE}) AS g")
    sql.rows(upsert, {**named, "reserved_in": None, "is_exhausted": int(is_exhausted)})
