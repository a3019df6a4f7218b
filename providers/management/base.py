"""Shared by the commands of providers."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from engines.core.errors import PolicyError
from ergon_site.access.cli import commands
from ergon_site.access.cli.options import text
from ergon_site.access.core import json_text
from ergon_site.access.policies.errors import PolicyRefusal
from providers.calls import OrderError
from providers.core.exchange import Who
from providers.models import Gate
from providers.reads import health
from providers.reads.health import Standing

LONGEST = 100
LARGEST = 256 * 1024
BOM = b"\xef\xbb\xbf"


class UnknownError(Exception):
    """Nothing is known of a capability."""

    def __init__(self, who: Who) -> None:
        whose = f"{who.provider_name} {who.capability} of {who.tenant_id}"
        super().__init__(f"{whose} is unknown: it was never called and has no quota or override")


class VerbsCommand(commands.VerbsCommand):
    refusals = (OrderError, PolicyError, PolicyRefusal, UnknownError)


def tenant(value: str) -> str:
    try:
        return str(UUID(value))
    except ValueError:
        msg = f"must be the UUID of a tenant, not {value!r}"
        raise ArgumentTypeError(msg) from None


def add_who(parser: ArgumentParser, **many: Any) -> ArgumentParser:
    """The three names of a capability; with `nargs="?"` the last may be left out, where several are shown."""
    parser.add_argument("tenant_id", metavar="TENANT", type=tenant, help="whose calls: the tenant's UUID", **many)
    return add_capability(parser, **many)


def add_capability(parser: ArgumentParser, **many: Any) -> ArgumentParser:
    """A provider and what is called of it, whoever calls."""
    name = text(LONGEST)
    parser.add_argument("provider_name", metavar="PROVIDER", type=name, help="the provider's name", **many)
    parser.add_argument("capability", metavar="CAPABILITY", type=name, help="the provider's capability", **many)
    return parser


def who_in(options: dict[str, Any]) -> Who:
    return Who(*(options[name] for name in Who._fields))


def json_file(path: str) -> Any:
    """The value that a file holds, or standard input where the file is called '-'."""
    with commands.opened(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        msg = f"{path} has more than {LARGEST:,} bytes"
        raise CommandError(msg)
    try:
        return json_text.parse(content.removeprefix(BOM))
    except json_text.MalformedJSONError as error:
        msg = f"{path}: {str(error).replace('The body', 'it')}"
        raise CommandError(msg) from None


def wanted(tenant_id: str | None, provider_name: str | None, capability: str | None) -> list[Standing]:
    """The capabilities that the given names match. All three names must match something."""
    if tenant_id and provider_name and capability:
        who = Who(tenant_id, provider_name, capability)
        found = health.health_of(who)
        if found is None:
            raise UnknownError(who)
        return [found]
    if tenant_id:
        stands = health.of_tenant(tenant_id)
        return [one for one in stands if provider_name in (None, one.who.provider_name)]
    return health.of_gates(list(Gate.objects.all()))
