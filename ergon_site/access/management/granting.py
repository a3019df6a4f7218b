"""The grants of a client as options: an option replaces a grant, a missing one keeps it."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from ergon_site.access.clients import Grant
from ergon_site.access.core.scopes import SCOPES
from ergon_site.access.models import ApiClient

LISTS = {
    "scopes": f"what it may do: {', '.join(SCOPES)}",
    "zones": "zones it may send from",
    "target_zones": "zones it may send to",
    "consumers": "consumers whose facts it may read",
    "buckets": "buckets whose artifacts it may use",
    "tenants": "tenants it may see",
}


def add_options(parser: ArgumentParser) -> None:
    for name, what in LISTS.items():
        kind = UUID if name == "tenants" else str
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(
            option,
            dest=name,
            nargs="*",
            type=kind,
            metavar="ONE",
            help=f"{what}; replaces the present ones; without a value: none",
        )
    parser.add_argument("--rate", type=float, help="requests a second; 0 for the deployment's rate")


def changed(client: ApiClient, options: Mapping[str, Any]) -> Grant:
    """The whole grant of a client, with what the options name."""
    lists = {name: getattr(client, name) if options[name] is None else options[name] for name in LISTS}
    return Grant(**lists, rate=_rate(client, options["rate"]))


def _rate(client: ApiClient, asked: float | None) -> float | None:
    if asked is None:
        return client.rate
    if not asked >= 0:
        msg = "--rate must be above 0, or 0 for the deployment's rate."
        raise CommandError(msg)
    return asked or None
