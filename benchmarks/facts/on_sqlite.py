"""Appends over HTTP on SQLite: with the connection that each thread keeps, and with one for each request."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import orjson

from benchmarks.facts import over_http
from benchmarks.facts.at_once import FROM, NEXT, TO, draft
from benchmarks.facts.rounds import Contender

ROOT = Path(__file__).resolve().parents[2]
KEPT, OPENED = "SQLite, connection kept", "SQLite, connection for each request"
SETTINGS = {KEPT: "ergon_site.settings", OPENED: "benchmarks.facts.opening"}
COMMANDS = (
    ["migrate", "--verbosity", "0"],
    ["zone", "create", FROM],
    ["zone", "create", TO],
    ["boundary", "create", FROM, TO],
    ["create_api_client", "benchmark", "--zone", FROM, "--target-zone", TO],
)


def contenders(folder: Path, stack: ExitStack, share: float) -> dict[str, Contender]:
    return {name: _contender(folder / module, module, stack, share) for name, module in SETTINGS.items()}


def _contender(folder: Path, module: str, stack: ExitStack, share: float) -> Contender:
    folder.mkdir()
    address = {"DATABASE_URL": f"sqlite:///{folder}/ergon.sqlite3", "ERGON_DATA_DIR": str(folder)}
    variables = {**os.environ, **address, "DJANGO_SETTINGS_MODULE": module}
    token = [_manage(command, variables) for command in COMMANDS][-1]
    port = over_http.server(folder, stack, variables)

    def run() -> Mapping[str, float]:
        alone = over_http.calls(port, token, "/api/v1/facts", _body, int(over_http.ALONE * share), 1)
        many = over_http.calls(port, token, "/api/v1/facts", _body, int(over_http.ALONE * share), 4)
        return {"p50, SQLite": alone["p50"], "p99, SQLite": alone["p99"], "http, SQLite": many["http"]}

    return run


def _body() -> bytes:
    return orjson.dumps(draft(next(NEXT)))


def _manage(command: list[str], variables: Mapping[str, str]) -> str:
    program = [sys.executable, str(ROOT / "manage.py"), *command]
    done = subprocess.run(program, env=variables, capture_output=True, text=True, check=True)  # noqa: S603 (ours)
    return done.stdout.strip()
