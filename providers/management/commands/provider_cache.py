"""`manage.py provider_cache show|drop`."""

from typing import Any

from django.db.models import Count, Max, Min

from ergon_site.access.cli.commands import actor, moment
from ergon_site.access.cli.options import add_reason, add_yes
from providers import calls
from providers.core.exchange import Who
from providers.core.gate import moment as moment_of
from providers.management.base import VerbsCommand, add_create, add_who, who_in
from providers.models import CachedAnswer


class Command(VerbsCommand):
    help = "Show and drop the answers of providers that are kept for whoever asks the same again."

    def add_verbs(self) -> None:
        self.add_verb("show", help="show how many answers are kept of each capability, and how old they are")
        drop = self.add_verb("drop", help="delete the kept answers of a capability: the next calls ask the provider")
        add_yes(drop)
        add_reason(add_create(add_who(drop)))

    def show(self, **_: Any) -> None:
        kept = CachedAnswer.objects.order_by(*Who._fields).values(*Who._fields)
        ages = {"oldest": Min("answered_at"), "newest": Max("answered_at")}
        rows = [
            {**row, **{name: moment_of(row[name]) for name in ages}}
            for row in kept.annotate(answers=Count("pk"), **ages)
        ]
        headings = ["tenant", "provider", "capability", "oldest", "newest", "answers"]
        self.tell(rows, self.table(headings, map(_row, rows)))

    def drop(self, *, yes: bool, reason: str, **options: Any) -> None:
        who = who_in(options)
        if kept := calls.kept_answers(who).count():
            self.ask_first(f"this deletes {kept:,} cached answer{'s'[: kept != 1]} of {who.title}", yes=yes)
        count = calls.drop_answers(who, by=actor(), reason=reason)
        self.tell(
            {**who._asdict(), "dropped": count}, f"{who.title}: {count:,} cached answer{'s'[: count != 1]} dropped"
        )


def _row(told: dict[str, Any]) -> list[Any]:
    times = (moment(told[name]) for name in ("oldest", "newest"))
    return [*(told[name] for name in Who._fields), *times, told["answers"]]
