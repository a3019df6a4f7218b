"""Old snapshots, which make claims slower and slower."""

from collections.abc import Iterator

from django.db import connection

from engines.core.explanation import span
from engines.reads import old_snapshots
from engines.reads.doctor.finding import Finding, ok, problem, warning


def snapshots() -> Iterator[Finding]:
    if connection.vendor != "postgresql":
        return
    found = list(old_snapshots.holders())
    for holder in found:
        say = problem if holder.is_very_old else warning
        yield say("snapshots", f"{holder.title}: {holder.detail}; claims get slower meanwhile", holder.remedy)
    if not found:
        yield ok("snapshots", f"no transaction has been open for {span(old_snapshots.LONG)}")
    if not old_snapshots.can_see_all():
        text = "this role cannot see the age and address of other users' sessions"
        yield warning("snapshots", text, f"GRANT pg_read_all_stats TO {connection.settings_dict['USER']}")
