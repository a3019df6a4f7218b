"""`manage.py create_api_client NAME …`: prints the token alone on stdout."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from ergon_site.access import clients
from ergon_site.access.cli import options
from ergon_site.access.cli.commands import actor, tell_errors_in_one_line, told_in_one_line
from ergon_site.access.clients import CertificateTakenError, ClientUnknownError, Grant, NameTakenError
from ergon_site.access.core.scopes import SCOPES, UnknownScopeError
from ergon_site.access.core.terms import LONGEST_TIME, UnusableTermError

REFUSALS = (ClientUnknownError, NameTakenError, CertificateTakenError, UnknownScopeError, UnusableTermError)
LISTS = ("scope", "zone", "target_zone", "consumer", "bucket", "tenant")
NOT_ROTATED = (*LISTS, "rate", "certificate")


def time_in(unit: str, *, least: int, most: int) -> Callable[[str], timedelta]:
    def parse(text: str) -> timedelta:
        try:
            return timedelta(**{unit: options.whole(least, most)(text)})
        except ArgumentTypeError:
            msg = f"must be a whole number of {unit} from {least} to {most:,}"
            raise ArgumentTypeError(msg) from None

    return parse


class Command(BaseCommand):
    # A token must be had even where something else of the deployment is wrong.
    requires_system_checks = []
    help = "Create an API client, or issue a new token to an existing one (--rotate). Prints only the token, this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        tell_errors_in_one_line(parser)
        parser.add_argument("name", help="the client's name: that of a system, not of a person")
        for option, what in {
            "--scope": f"something it may do: {', '.join(SCOPES)}",
            "--zone": "a zone it may send from",
            "--target-zone": "a zone it may send to",
            "--consumer": "a consumer whose facts it may read",
            "--bucket": "a bucket whose artifacts it may use",
        }.items():
            parser.add_argument(option, action="append", default=[], help=f"{what} (repeatable)")
        parser.add_argument("--tenant", action="append", default=[], type=UUID, help="a tenant it may see (repeatable)")
        parser.add_argument("--rate", type=float, help="requests a second; the deployment's rate if not given")
        parser.add_argument(
            "--certificate", metavar="IDENTITY", help="subject or fingerprint of its certificate, as the proxy sends it"
        )
        life = parser.add_mutually_exclusive_group()
        expiry = f"when the token and --certificate expire (default: {clients.LIFETIME.days})"
        days = time_in("days", least=1, most=LONGEST_TIME.days)
        life.add_argument("--expires", type=days, metavar="DAYS", default=clients.LIFETIME, help=expiry)
        life.add_argument("--never-expires", dest="expires", action="store_const", const=None, help="they never expire")
        parser.add_argument("--rotate", action="store_true", help="issue a new token to the client of that name")
        overlap = "with --rotate: how long the earlier tokens stay valid (default 3600)"
        seconds = time_in("seconds", least=0, most=int(LONGEST_TIME.total_seconds()))
        parser.add_argument("--overlap", type=seconds, default=clients.OVERLAP, metavar="SECONDS", help=overlap)

    def handle(self, *, name: str, rotate: bool, **given: Any) -> None:
        if rotate and any(given[option] is not None and given[option] != [] for option in NOT_ROTATED):
            msg = "--rotate changes the token alone; what the client may do, and its certificate, in the console."
            raise CommandError(msg)
        with told_in_one_line(*REFUSALS):
            if rotate:
                terms = {"overlap": given["overlap"], "lifetime": given["expires"]}
                issued = clients.rotate(clients.find(name).pk, by=actor(), **terms)
            else:
                grant = Grant(**{f"{one}s": given[one] for one in LISTS}, rate=given["rate"])
                clients.check_zones([*given["zone"], *given["target_zone"]])
                terms = {"lifetime": given["expires"], "certificate": given["certificate"]}
                issued = clients.create(name, grant, by=actor(), **terms)
        self.stdout.write(issued.token.text)
