"""`python -m engines.executors --handlers module[:registry]`: an executor in Python."""

import argparse
import os
import sys
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
    # Taken before anything is imported that may print: stdout belongs to the protocol, for C code as well.
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    registry = found(parser.parse_args().handlers)
    telemetry.export(os.environ)  # noqa: TID251 (an executor has no settings; these are OpenTelemetry's own)

    def answer(line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(out, rest) :]

    try:
        Runtime(registry, 0, answer).run()
    except BrokenPipeError:
        sys.exit("executor: the orchestrator has gone")


def found(path: str) -> HandlerRegistry:
    module, _, name = path.partition(":")
    name = name or "registry"
    try:
        registry = getattr(import_module(module), name)
    except ImportError as error:
        refuse(f"the module {module!r} cannot be imported: {error}")
    except AttributeError:
        refuse(f"the module {module!r} has no {name!r}: name its HandlerRegistry, as in {module}:handlers")
    if not isinstance(registry, HandlerRegistry):
        refuse(f"{module}:{name} is a {type(registry).__name__}, not a HandlerRegistry")
    return registry


def refuse(message: str) -> NoReturn:
    sys.stderr.write(f"executor: {message}\n")
    sys.exit(os.EX_CONFIG)


if __name__ == "__main__":
    main()
