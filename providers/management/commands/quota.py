"""`manage.py quota set|show|drop`."""

from typing import Any

from ergon_site.access.cli.commands import actor, moment
from ergon_site.access.cli.options import add_reason, some_seconds, whole
from providers import calls
from providers.core.exchange import Who
from providers.management.base import VerbsCommand, add_create, add_who, wanted, who_in

MOST = 10**12 - 1


class Command(VerbsCommand):
    help = "Set, show and drop quotas: how many calls of a provider a tenant may make in each time window."

    def add_verbs(self) -> None:
        put = add_create(
            add_who(self.add_verb("set", help="set a quota; calls made in the current window stay counted"))
        )
        put.add_argument("--limit", required=True, type=whole(0, MOST), metavar="N", help="calls in each window")
        put.add_argument("--window", required=True, type=some_seconds, metavar="SECONDS", help="how long a window is")
        add_reason(put, required=False)
        show = self.add_verb("show", help="show one quota, those of a tenant or of a provider, or all")
        add_who(show, nargs="?")
        drop = add_create(add_who(self.add_verb("drop", help="remove a quota: calls are no longer limited")))
        add_reason(drop, required=False)

    def set(self, *, limit: int, window: float, reason: str, **options: Any) -> None:
        who = who_in(options)
        row = calls.set_quota(who, limit=limit, window=window, by=actor(), reason=reason)
        line = f"{who.title}: {limit:,} calls in every {window:g} s"
        names = (*Who._fields, "limit_count", "used_count", "remaining_count")
        told = {**{name: getattr(row, name) for name in names}, "window_seconds": window}
        told |= {"window_start": row.window_start, "window_end": row.window_end}
        self.tell(told, f"{line}; {row.used_count:,} used until {moment(row.window_end)}")

    def show(self, *, tenant_id: str | None, provider_name: str | None, capability: str | None, **_: Any) -> None:
        rows = [
            {
                **one.who._asdict(),
                "limit_count": quota.limit,
                "used_count": quota.used,
                "remaining_count": quota.remaining,
                "window_seconds": one.gate.quota_window if one.gate else (quota.end - quota.start).total_seconds(),
                "window_start": quota.start,
                "window_end": quota.end,
            }
            for one in wanted(tenant_id, provider_name, capability)
            if (quota := one.quota) is not None
        ]
        headings = ["tenant", "provider", "capability", "limit", "used", "remaining", "window", "ends"]
        self.tell(rows, self.table(headings, map(_row, rows)))

    def drop(self, *, reason: str, **options: Any) -> None:
        who = who_in(options)
        calls.drop_quota(who, by=actor(), reason=reason)
        told = {**who._asdict(), "quota": None}
        self.tell(told, f"{who.title}: quota removed")


def _row(told: dict[str, Any]) -> list[Any]:
    names = (*Who._fields, "limit_count", "used_count", "remaining_count")
    return [*(told[name] for name in names), f"{told['window_seconds']:g} s", moment(told["window_end"])]
