"""What the commands of the engines share: what they refuse, and files with JSON."""

import sys
from argparse import ArgumentTypeError
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from engines import payloads
from engines.conf import settings
from engines.core.errors import EngineError
from ergon_site.access.shell import commands
from ergon_site.access.shell.commands import actor, as_json, moment, one_line, pretty

__all__ = [
    "EngineCommand",
    "VerbsCommand",
    "actor",
    "as_json",
    "json_file",
    "json_value",
    "moment",
    "one_line",
    "pretty",
    "read",
    "told_in_one_line",
]


class EngineCommand(commands.VerbCommand):
    """A command that calls a verb of the engines."""

    refusals = (EngineError,)


class VerbsCommand(commands.VerbsCommand):
    """A command with several verbs of the engines."""

    refusals = (EngineError,)

    def run(self, *, verb: str | None, **options: Any) -> None:
        super().run(verb=verb and verb.replace("-", "_"), **options)


def told_in_one_line() -> AbstractContextManager[None]:
    return commands.told_in_one_line(EngineError)


def json_file(path: str) -> Any:
    """The value that a file holds, or standard input where the file is called '-'."""
    try:
        return payloads.decode(read(path).decode("utf-8-sig"))
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise CommandError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not JSON: {error}"
        raise CommandError(msg) from None


def read(path: str) -> bytes:
    # A value over its limit is refused by the verb; here it only matters that a wrong file ends somewhere.
    most = 2 * settings().payload_limit
    with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        msg = f"{path} has more than {most:,} bytes"
        raise CommandError(msg)
    return content


def json_value(value: str) -> Any:
    try:
        return payloads.decode(value)
    except (ValueError, RecursionError) as error:
        msg = f"is not JSON: {error}"
        raise ArgumentTypeError(msg) from None
