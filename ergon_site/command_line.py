"""`manage.py`, with one clear line instead of a traceback where the set-up is wrong."""

import os
import sys
from typing import NoReturn

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, OperationalError, connections

from ergon_site import telemetry
from ergon_site.access import pending_migrations
from ergon_site.access.database.description import describe

DEPENDENCY_MISSING = os.EX_UNAVAILABLE
WRONG_USAGE = 2


def run(argv: list[str]) -> None:
    # Of Django's commands too: their parsers cannot be replaced otherwise.
    CommandParser.error = _refuse_usage  # type: ignore[method-assign, assignment]
    telemetry.start(web=argv[1:2] == ["runserver"], metrics=_serves_metrics(argv))
    try:
        execute_from_command_line(argv)
    except DatabaseError as error:
        if "--traceback" in argv or (why := _why(error)) is None:
            raise
        sys.stderr.write(f"ergon: {why}\n")
        sys.exit(DEPENDENCY_MISSING)


def _refuse_usage(parser: CommandParser, message: str) -> NoReturn:
    """Refuse wrong usage in one line, without the list of options."""
    if not parser.called_from_command_line:
        text = f"Error: {message}"
        raise CommandError(text)
    parser.exit(WRONG_USAGE, f"{parser.prog}: {message}; {parser.prog} --help lists the options\n")


def _serves_metrics(argv: list[str]) -> bool:
    is_named = any(argument.startswith("--metrics-port") for argument in argv)
    return is_named or settings.ERGON_METRICS_PORT is not None


def _why(error: DatabaseError) -> str | None:
    """The fault of the database itself; None if it is something else."""
    if isinstance(error, OperationalError) and not _is_reachable():
        return f"DATABASE_URL: the database does not answer: {_first_line(error)}"
    if not pending_migrations.migrations():
        return None
    return f"the database is not up to date: run manage.py migrate (it is {describe(connections['default'])})"


def _is_reachable() -> bool:
    connection = connections["default"]
    try:
        connection.close()
        connection.ensure_connection()
    except OperationalError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
