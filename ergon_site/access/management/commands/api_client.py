"""`manage.py api_client list|amend|disable|enable`: the console's switches for API clients."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from ergon_site.access import clients
from ergon_site.access.cli.commands import VerbsCommand, actor, as_json, moment
from ergon_site.access.cli.options import add_reason
from ergon_site.access.cli.tables import cell_text, printable
from ergon_site.access.clients import ClientUnknownError
from ergon_site.access.core.scopes import SCOPES, UnknownScopeError
from ergon_site.access.core.terms import UnusableTermError
from ergon_site.access.models import ApiClient

SWITCHES = {"disable": clients.disable, "enable": clients.enable}
LISTS = {
    "scopes": f"what it may do: {', '.join(SCOPES)}",
    "zones": "zones it may send from",
    "target_zones": "zones it may send to",
    "consumers": "consumers whose facts it may read",
    "buckets": "buckets whose artifacts it may use",
    "tenants": "tenants it may see",
}


class Command(VerbsCommand):
    refusals = (ClientUnknownError, UnknownScopeError, UnusableTermError)
    help = "List, change, disable and enable API clients. create_api_client creates them and rotates their tokens."

    def add_verbs(self) -> None:
        self.add_verb("list", help="list clients with their states and scopes")
        for verb in SWITCHES:
            switch = self.add_verb(verb, help=f"{verb} a client and all its tokens")
            switch.add_argument("name", metavar="NAME", help="the client's name")
            add_reason(switch)
        amend = self.add_verb(
            "amend", help="change what a client may do; its tokens and options that are not given stay as they are"
        )
        amend.add_argument("name", metavar="NAME", help="the client's name")
        for name, what in LISTS.items():
            option, kind = f"--{name.replace('_', '-')}", UUID if name == "tenants" else str
            text = f"{what}; replaces the present ones; without a value: none"
            amend.add_argument(option, dest=name, nargs="*", type=kind, metavar="ONE", help=text)
        amend.add_argument("--rate", type=float, metavar="N", help="requests a second; 0 for the deployment's rate")

    def list(self, **_: Any) -> None:
        rows: Any = clients.with_last_use(ApiClient.objects.all())
        told = [
            {"name": one.name, "state": _state(one), "scopes": ",".join(one.scopes), "last_used_at": one.last_used_at}
            for one in rows
        ]
        if self.is_json:  # a line for each
            for one in told:
                self.stdout.write(as_json(one))
            return
        table = ([one["name"], one["state"], moment(one["last_used_at"]), one["scopes"]] for one in told)
        self.tell(told, self.table(["name", "state", "last used (UTC)", "scopes"], table))

    def amend(self, *, name: str, rate: float | None, **options: Any) -> None:
        """Change the grants that options name; the others stay."""
        client = clients.find(name)
        if rate is not None and not rate >= 0:
            msg = "--rate must be above 0, or 0 for the deployment's rate."
            raise CommandError(msg)
        changes = {one: options[one] for one in LISTS if options[one] is not None}
        changes |= {} if rate is None else {"rate": rate or None}
        clients.check_zones([*(options["zones"] or ()), *(options["target_zones"] or ())])
        client = clients.amend(client.pk, changes, by=actor())
        told = {"name": name, **{one: getattr(client, one) for one in (*LISTS, "rate")}}
        granted = [f"  {one.replace('_', ' ')}: {cell_text(told[one])}" for one in (*LISTS, "rate") if told[one]]
        self.tell(told, [f"changed the API client {name}; it may use:", *granted])

    def disable(self, **options: Any) -> None:
        self._switch("disable", **options)

    def enable(self, **options: Any) -> None:
        self._switch("enable", **options)

    def _switch(self, verb: str, *, name: str, reason: str, **_: Any) -> None:
        client = clients.find(name)
        changed = SWITCHES[verb](client.pk, by=actor(), reason=reason)
        client.refresh_from_db()
        told = {"name": name, "state": _state(client), "changed": changed}
        words = f"{verb}d the API client {name}" if changed else f"the API client {name} was {verb}d already"
        self.tell(told, printable(words))


def _state(client: ApiClient) -> str:
    return "disabled" if client.disabled_at else "enabled"
