"""`manage.py create_api_client NAME …`: prints the token alone on stdout."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from getpass import getuser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from ergon_site.access import clients
from ergon_site.access.clients import CertificateTakenError, Grant, Issued, NameTakenError
from ergon_site.access.core.certificates import UnusableIdentityError
from ergon_site.access.core.scopes import SCOPES, UnknownScopeError
from ergon_site.access.models import ApiClient

REFUSALS = (NameTakenError, CertificateTakenError, UnknownScopeError, UnusableIdentityError)
NOT_ROTATED = ("scope", "zone", "target_zone", "consumer", "bucket", "tenant", "rate", "certificate")


def days(text: str) -> timedelta:
    if not text.isdecimal() or int(text) == 0:
        msg = "must be a whole number of days above 0"
        raise ArgumentTypeError(msg)
    return timedelta(days=int(text))


def seconds(text: str) -> timedelta:
    if not text.isdecimal():
        msg = "must be a whole number of seconds"
        raise ArgumentTypeError(msg)
    return timedelta(seconds=int(text))


class Command(BaseCommand):
    help = "Create an API client, or give an existing one a new token (--rotate). Prints the token alone, this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="who calls: a system, not a person")
        for option, what in {
            "--scope": f"something it may do: {', '.join(SCOPES)}",
            "--zone": "a zone it may speak for",
            "--target-zone": "a zone it may send to",
            "--consumer": "a consumer whose facts it may read",
            "--bucket": "a bucket whose artifacts it may use",
        }.items():
            parser.add_argument(option, action="append", default=[], help=f"{what} (repeatable)")
        parser.add_argument("--tenant", action="append", default=[], type=UUID, help="a tenant it may see (repeatable)")
        parser.add_argument("--rate", type=float, help="requests a second; the deployment's rate if not given")
        parser.add_argument(
            "--certificate", metavar="IDENTITY", help="subject or fingerprint of its certificate, as the proxy tells it"
        )
        parser.add_argument(
            "--expires", type=days, metavar="DAYS", help="life of the token, and of --certificate; endless if not given"
        )
        parser.add_argument("--rotate", action="store_true", help="issue a new token to the client of that name")
        parser.add_argument(
            "--overlap",
            type=seconds,
            default=clients.OVERLAP,
            metavar="SECONDS",
            help="with --rotate: how long the earlier tokens go on (default 3600)",
        )

    def handle(self, *, name: str, rotate: bool, **options: Any) -> None:
        try:
            issued = self._rotate(name, options) if rotate else self._create(name, options)
        except REFUSALS as error:
            raise CommandError(str(error)) from None
        self.stdout.write(issued.token.text)

    def _create(self, name: str, options: dict[str, Any]) -> Issued:
        if options["rate"] is not None and options["rate"] <= 0:
            msg = "--rate must be above 0."
            raise CommandError(msg)
        grant = Grant(
            scopes=options["scope"],
            zones=options["zone"],
            target_zones=options["target_zone"],
            consumers=options["consumer"],
            buckets=options["bucket"],
            tenants=options["tenant"],
            rate=options["rate"],
        )
        terms = {"lifetime": options["expires"], "certificate": options["certificate"]}
        return clients.create(name, grant, by=_operator(), **terms)

    def _rotate(self, name: str, options: dict[str, Any]) -> Issued:
        if any(options[name] for name in NOT_ROTATED):
            msg = "--rotate changes the token alone; what the client may do, and its certificate, in the console."
            raise CommandError(msg)
        client = ApiClient.objects.filter(name=name).first()
        if client is None:
            msg = f"There is no API client named {name!r}."
            raise CommandError(msg)
        return clients.rotate(client.pk, by=_operator(), overlap=options["overlap"], lifetime=options["expires"])


def _operator() -> str:
    return f"command:{getuser()}"
