"""`manage.py`, with one clear line instead of a traceback where the set-up is wrong."""

import gc
import os
import sys
from pathlib import Path
from typing import Any

from django.core.management import ManagementUtility
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, OperationalError, connection

from engines.conf import setting
from ergon_site import telemetry
from ergon_site.access import pending_migrations
from ergon_site.access.cli.commands import refuse_usage
from ergon_site.apps import CeleryResults

PACKAGES = Path(__file__).resolve().parent.parent
OWN_COMMANDS = ("engines", "facts", "providers", "ergon_site/access")


def run(argv: list[str]) -> None:
    # Of Django's commands too: their parsers cannot be replaced otherwise.
    CommandParser.error = refuse_usage  # type: ignore[method-assign, assignment]
    CeleryResults.is_left_for_later = _is_own(argv[1] if argv[1:] else "help")
    is_measured = any(argument.startswith("--metrics-port") for argument in argv)
    telemetry.start(web=argv[1:2] == ["runserver"], metrics=is_measured or setting("ERGON_METRICS_PORT") is not None)
    try:
        _Utility(argv).execute()
    except DatabaseError as error:
        if "--traceback" in argv or not (why := _why(error)):
            raise
        sys.stderr.write(f"ergon: {why}\n")
        sys.exit(os.EX_UNAVAILABLE)
    finally:
        gc.freeze()  # an interpreter that ends looks at everything once more, which takes a quarter as long as to start


def _is_own(command: str) -> bool:
    """Whether a command is Ergon's. Known by its file: Django knows commands once all apps are loaded."""
    folders = (PACKAGES / app / "management" / "commands" for app in OWN_COMMANDS)
    return command in {"help", "--help"} or any((folder / f"{Path(command).name}.py").exists() for folder in folders)


class _Utility(ManagementUtility):
    def fetch_command(self, subcommand: str) -> Any:
        """Load a command, the last to be loaded; from then on garbage is collected, which nothing loaded can be."""
        command = super().fetch_command(subcommand)
        if command.requires_migrations_checks and subcommand != "runserver":
            # Django's own prints a notice of three lines and goes on, into an error that says it once more.
            command.check_migrations = _refuse_old_database  # type: ignore[method-assign]
        gc.freeze()
        gc.enable()
        return command


def _refuse_old_database() -> None:
    if text := pending_migrations.hint():
        raise CommandError(text, returncode=os.EX_UNAVAILABLE)


def _why(error: DatabaseError) -> str:
    """The fault of the database itself; empty if it is something else."""
    if isinstance(error, OperationalError):
        try:
            connection.close()
            connection.ensure_connection()
        except OperationalError:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return f"DATABASE_URL: the database does not answer: {lines[0]}"
    return pending_migrations.hint()
