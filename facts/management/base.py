"""Shared by the commands of the boundary."""

from argparse import ArgumentParser
from shlex import quote

from ergon_site.access.cli import commands
from ergon_site.access.cli.program import typed
from facts.core.errors import FactError, UnusableZoneError


class VerbsCommand(commands.VerbsCommand):
    """A command with several verbs of the boundary."""

    refusals = (FactError,)

    def hint_for(self, error: Exception) -> str:
        if not isinstance(error, UnusableZoneError):
            return ""
        return f"create it with {typed(f'zone create {quote(error.zone)}')}"


def add_pair(parser: ArgumentParser) -> None:
    parser.add_argument("from_zone", metavar="FROM", help="the zone that facts come from")
    parser.add_argument("to_zone", metavar="TO", help="the zone that they go to")
