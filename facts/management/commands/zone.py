"""`manage.py zone create|list`."""

from typing import Any

from ergon_site.access.shell.commands import actor, moment
from ergon_site.access.shell.options import add_reason
from facts import provisioning
from facts.management.base import VerbsCommand
from facts.models import Zone


class Command(VerbsCommand):
    help = "Make and list zones: the places that facts come from and go to. Names are matched exactly."

    def add_verbs(self) -> None:
        create = self.add_verb("create", help="register a zone")
        create.add_argument("name", metavar="NAME", help="such as 'Plant A'")
        add_reason(create, required=False)
        self.add_verb("list", help="every zone")

    def create(self, *, name: str, reason: str, **_: Any) -> None:
        made = provisioning.create_zone(name, by=actor(), reason=reason)
        self.tell({"name": made.name}, f"made the zone {made}")

    def list(self, **_: Any) -> None:
        zones = list(Zone.objects.all())
        rows = [{"name": zone.name, "created_at": zone.created_at} for zone in zones]
        self.tell(rows, self.table(["name", "created"], ([zone.name, moment(zone.created_at)] for zone in zones)))
