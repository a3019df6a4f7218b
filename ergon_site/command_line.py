"""`manage.py`, with one clear line instead of a traceback where the set-up is wrong."""

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import OperationalError, connections

from ergon_site import telemetry

DEPENDENCY_MISSING = os.EX_UNAVAILABLE


def run(argv: list[str]) -> None:
    telemetry.start(web=argv[1:2] == ["runserver"], metrics=_serves_metrics(argv))
    try:
        execute_from_command_line(argv)
    except OperationalError as error:
        if "--traceback" in argv or _is_reachable():
            raise
        sys.stderr.write(f"ergon: DATABASE_URL: the database does not answer: {_first_line(error)}\n")
        sys.exit(DEPENDENCY_MISSING)


def _serves_metrics(argv: list[str]) -> bool:
    is_named = any(argument.startswith("--metrics-port") for argument in argv)
    return is_named or settings.ERGON_METRICS_PORT is not None


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
