"""`manage.py zone create|list|retire`."""

from typing import Any

from ergon_site.access.shell.commands import actor, moment
from ergon_site.access.shell.options import add_reason
from facts import provisioning, retiring
from facts.management.base import VerbsCommand
from facts.models import Zone


class Command(VerbsCommand):
    help = "Make, list and retire zones: the places that facts come from and go to. Names are matched exactly."

    def add_verbs(self) -> None:
        create = self.add_verb("create", help="register a zone")
        create.add_argument("name", metavar="NAME", help="such as 'Plant A'")
        add_reason(create, required=False)
        self.add_verb("list", help="every zone")
        retire = self.add_verb("retire", help="no boundary can be made from it or to it any more")
        retire.add_argument("name", metavar="NAME")
        add_reason(retire)

    def create(self, *, name: str, reason: str, **_: Any) -> None:
        made = provisioning.create_zone(name, by=actor(), reason=reason)
        self.tell({"name": made.name}, f"made the zone {made}")

    def retire(self, *, name: str, reason: str, **_: Any) -> None:
        retired = retiring.retire_zone(name, by=actor(), reason=reason)
        self.tell({"name": retired.name, "retired_at": retired.retired_at}, f"retired the zone {retired}")

    def list(self, **_: Any) -> None:
        zones = list(Zone.objects.all())
        rows = [{name: getattr(zone, name) for name in ("name", "created_at", "retired_at")} for zone in zones]
        table = ([zone.name, moment(zone.created_at), "retired" if zone.is_retired else ""] for zone in zones)
        self.tell(rows, self.table(["name", "created", "state"], table))
