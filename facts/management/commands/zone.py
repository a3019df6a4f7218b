"""`manage.py zone create|list|retire`."""

from typing import Any

from ergon_site.access.cli.commands import actor, moment
from ergon_site.access.cli.options import add_reason, add_yes
from facts import provisioning, retiring
from facts.management.base import VerbsCommand
from facts.models import Zone


class Command(VerbsCommand):
    help = "Create, list and retire zones. Facts are handed over between zones. Names are case-sensitive."

    def add_verbs(self) -> None:
        create = self.add_verb("create", help="create a zone")
        create.add_argument("name", metavar="NAME", help="the zone's name, such as 'Plant A'")
        add_reason(create, required=False)
        self.add_verb("list", help="list zones")
        retire = self.add_verb("retire", help="end a zone: no boundary can be created from it or to it")
        retire.add_argument("name", metavar="NAME", help="the zone's name")
        add_yes(retire)
        add_reason(retire)

    def create(self, *, name: str, reason: str, **_: Any) -> None:
        made = provisioning.create_zone(name, by=actor(), reason=reason)
        self.tell({"name": made.name}, f"created the zone {made}")

    def retire(self, *, name: str, yes: bool, reason: str, **_: Any) -> None:
        self.ask_first(f"this ends the zone {name}", yes=yes)
        retired = retiring.retire_zone(name, by=actor(), reason=reason)
        self.tell({"name": retired.name, "retired_at": retired.retired_at}, f"retired the zone {retired}")

    def list(self, **_: Any) -> None:
        zones = list(Zone.objects.all())
        rows = [{name: getattr(zone, name) for name in ("name", "created_at", "retired_at")} for zone in zones]
        table = ([zone.name, moment(zone.created_at), "retired" if zone.is_retired else ""] for zone in zones)
        self.tell(rows, self.table(["name", "created", "state"], table))
