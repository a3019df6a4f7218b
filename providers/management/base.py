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
from providers import registry
from providers.calls import OrderError
from providers.core.exchange import Who
from providers.core.gate import EVERY
from providers.models import Gate, ProviderPolicyRow
from providers.models.columns import NAME
from providers.reads import health
from providers.reads.health import Standing

LARGEST = 256 * 1024
WHOSE = "whose calls: the tenant's UUID; or '*', with the capability '*', for all that share the provider's account"
BOM = b"\xef\xbb\xbf"


class UnknownError(Exception):
    """Nothing is known of a capability."""

    def __init__(self, who: Who) -> None:
        super().__init__(f"{who.title} is unknown: it was never called and has no quota or override")


class VerbsCommand(commands.VerbsCommand):
    refusals = (OrderError, PolicyError, PolicyRefusal, UnknownError)


def tenant(value: str) -> str:
    if value.startswith(EVERY):
        return text(NAME)(value)
    try:
        return str(UUID(value))
    except ValueError:
        msg = f"must be the UUID of a tenant, or * for all that share an account, not {value!r}"
        raise ArgumentTypeError(msg) from None


def add_who(parser: ArgumentParser, **many: Any) -> ArgumentParser:
    """The three names of a capability; with `nargs="?"` the last may be left out, where several are shown."""
    parser.add_argument("tenant_id", metavar="TENANT", type=tenant, help=WHOSE, **many)
    return add_capability(parser, **many)


def add_capability(parser: ArgumentParser, **many: Any) -> ArgumentParser:
    """A provider and what is called of it, whoever calls."""
    name = text(NAME)
    parser.add_argument("provider_name", metavar="PROVIDER", type=name, help="the provider's name", **many)
    parser.add_argument("capability", metavar="CAPABILITY", type=name, help="the provider's capability", **many)
    return parser


def add_create(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument(
        "--create", action="store_true", help="do so for a provider or capability that is not known yet"
    )
    return parser


def who_in(options: dict[str, Any]) -> Who:
    """The capability that is to be changed: one that was called, has a policy or is written here, against typos."""
    who = Who.of(*(options[name] for name in Who._fields))
    check_known(who.provider_name, None if who.is_account else who.capability, create=options["create"])
    return who


def check_known(provider_name: str, capability: str | None, *, create: bool) -> None:
    """Refuse a capability, or any of a provider, that nothing here knows, unless it is to be created."""
    names = {"provider_name": provider_name}
    if capability is None:
        is_written = any(name == provider_name for name, _ in registry.classes())
    else:
        names["capability"] = capability
        is_written = registry.known(**names) is not None
    if create or is_written or any(kind.objects.filter(**names).exists() for kind in (Gate, ProviderPolicyRow)):
        return
    msg = (
        f"no provider {provider_name!r} with the capability {capability or EVERY!r} is known here; for one that is only"
        " known elsewhere, or comes later, add --create"
    )
    raise CommandError(msg)


def json_file(path: str) -> Any:
    """The value that a file holds, or standard input where the file is called '-'."""
    try:
        return json_text.parse(commands.content_of(path, most=LARGEST).removeprefix(BOM))
    except json_text.MalformedJSONError as error:
        msg = f"{path}: {str(error).replace('The body', 'it')}"
        raise CommandError(msg) from None


def wanted(tenant_id: str | None, provider_name: str | None, capability: str | None) -> list[Standing]:
    """The capabilities that the given names match. All three names must match something."""
    if tenant_id and provider_name and capability:
        who = Who.of(tenant_id, provider_name, capability)
        found = health.health_of(who)
        if found is None:
            raise UnknownError(who)
        return [found]
    if tenant_id:
        stands = health.of_tenant(tenant_id)
        return [one for one in stands if provider_name in (None, one.who.provider_name)]
    return health.of_gates(list(Gate.objects.all()))
