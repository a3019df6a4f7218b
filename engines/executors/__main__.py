"""`python -m engines.executors --handlers module[:registry]`: an executor in Python."""

import argparse
import os
import sys
import traceback
from importlib import import_module
from typing import NoReturn

from engines.executors import telemetry
from engines.executors.handlers import HandlerRegistry
from engines.executors.runtime import Runtime


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m engines.executors",
        description="Run handlers for an orchestrator: one request a line on stdin, one outcome a line on stdout.",
    )
    parser.add_argument(
        "--handlers",
        required=True,
        metavar="MODULE[:REGISTRY]",
        help="the module with the handlers, and the name of its HandlerRegistry (default: registry)",
    )
    handlers = parser.parse_args().handlers
    requests, answers = take_pipes()
    registry = find_registry(handlers)
    telemetry.export(os.environ)  # noqa: TID251 (an executor has no settings; these are OpenTelemetry's own)

    def answer(line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(answers, rest) :]

    try:
        Runtime(registry, requests, answer).run()
    except BrokenPipeError:
        sys.exit("executor: the orchestrator has gone")


def take_pipes() -> tuple[int, int]:
    """Keep both pipes, of requests and of answers, for the protocol alone, before any import that may print or read.

    What handlers print, in C as well, goes to stderr; what they and the programs that they start read is empty.
    """
    pipes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return pipes


def find_registry(path: str) -> HandlerRegistry:
    module, _, name = path.partition(":")
    name = name or "registry"
    try:
        registry = getattr(import_module(module), name, None)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it does wrong, it cannot be used)
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if "importlib" in last.filename else f" ({last.filename}, line {last.lineno})"
        refuse(f"the module {module!r} cannot be imported: {type(error).__name__}: {error}{place}")
    if registry is None:
        refuse(f"the module {module!r} has no {name!r}: name its HandlerRegistry, as in {module}:handlers")
    if not isinstance(registry, HandlerRegistry):
        refuse(f"{module}:{name} is a {type(registry).__name__}, not a HandlerRegistry")
    return registry


def refuse(message: str) -> NoReturn:
    sys.stderr.write(f"executor: {' '.join(message.split())}\n")
    sys.exit(os.EX_CONFIG)


if __name__ == "__main__":
    main()
