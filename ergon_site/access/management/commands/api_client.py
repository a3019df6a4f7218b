"""`manage.py api_client list|amend|disable|enable`: the console's switches for API clients."""

import json
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from ergon_site.access import clients
from ergon_site.access.cli.commands import actor, told_in_one_line
from ergon_site.access.cli.options import add_reason
from ergon_site.access.clients import ClientUnknownError, Grant
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


class Command(BaseCommand):
    # One must be switched off even where something else of the deployment is wrong.
    requires_system_checks = []
    help = "List, change, disable and enable API clients. create_api_client creates them and rotates their tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="list clients with their states and scopes")
        for verb in SWITCHES:
            switch = verbs.add_parser(verb, help=f"{verb} a client and all its tokens")
            switch.add_argument("name")
            add_reason(switch)
        amend = verbs.add_parser(
            "amend", help="change what a client may do; its tokens and options that are not given stay as they are"
        )
        amend.add_argument("name")
        for name, what in LISTS.items():
            option, kind = f"--{name.replace('_', '-')}", UUID if name == "tenants" else str
            text = f"{what}; replaces the present ones; without a value: none"
            amend.add_argument(option, dest=name, nargs="*", type=kind, metavar="ONE", help=text)
        amend.add_argument("--rate", type=float, help="requests a second; 0 for the deployment's rate")

    def handle(self, *, verb: str, **options: Any) -> None:
        with told_in_one_line(ClientUnknownError, UnknownScopeError, UnusableTermError):
            if verb == "list":
                rows: Any = clients.with_last_use(ApiClient.objects.all())
                told = [
                    {
                        "name": client.name,
                        "state": _state(client),
                        "scopes": ",".join(client.scopes),
                        "last_used_at": client.last_used_at and client.last_used_at.isoformat(),
                    }
                    for client in rows
                ]
            else:
                told = [self._amend(**options) if verb == "amend" else self._switch(verb, **options)]
        for row in told:
            self.stdout.write(json.dumps(row) if options["json"] else "  ".join(map(str, row.values())))

    def _amend(self, *, name: str, rate: float | None, **options: Any) -> dict[str, Any]:
        """Change the grants that options name; the others stay."""
        client = clients.find(name)
        if rate is not None and not rate >= 0:
            msg = "--rate must be above 0, or 0 for the deployment's rate."
            raise CommandError(msg)
        lists = {one: getattr(client, one) if options[one] is None else options[one] for one in LISTS}
        grant = Grant(**lists, rate=client.rate if rate is None else rate or None)
        client = clients.amend(client.pk, grant, by=actor())
        return {"name": name, **{one: getattr(client, one) for one in (*LISTS, "rate")}}

    def _switch(self, verb: str, *, name: str, reason: str, **_: Any) -> dict[str, Any]:
        client = clients.find(name)
        changed = SWITCHES[verb](client.pk, by=actor(), reason=reason)
        client.refresh_from_db()
        return {"name": name, "state": _state(client), "changed": changed}


def _state(client: ApiClient) -> str:
    return "disabled" if client.disabled_at else "enabled"
