"""The settings of each executor in ERGON_EXECUTORS, checked."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from engines.core.errors import EngineError
from engines.executors.lines import LINE_LIMIT

MOST_PROCESSES = 1000
# What a program needs to be found and to run, in its own language and time zone, and to send its spans.
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("PYTHON*", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "JAVA_HOME", "NODE_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "OTEL_*"),
)


class ExecutorConfigurationError(EngineError, ValueError):
    """ERGON_EXECUTORS cannot be used as it is; the message names the executor and the field."""

    exit_code = os.EX_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    name: str
    command: tuple[str, ...]
    pool_size: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    line_limit: int = LINE_LIMIT


def inherited(environ: Mapping[str, str], more: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that an executor gets from the worker."""
    allowed = (*INHERITED, *more)
    return {name: value for name, value in environ.items() if any(fnmatchcase(name, one) for one in allowed)}


def executors_in(told: Mapping[str, Any]) -> dict[str, ExecutorSettings]:
    """The executors by name; refuses the first thing that is not as it should be."""
    return {name: _executor(name, about) for name, about in told.items()}


def _executor(name: str, about: Any) -> ExecutorSettings:
    if not name or "#" in name:
        refuse(name, "its name must not be empty and have no '#'")
    if not isinstance(about, dict):
        refuse(name, "it must be an object with a 'command'")
    known = {one for one in ExecutorSettings.__slots__ if one != "name"}
    if unknown := sorted(set(about) - known):
        refuse(name, f"{unknown[0]!r} is none of {', '.join(sorted(known))}")
    command = about.get("command")
    if not isinstance(command, list) or not command or not all(isinstance(one, str) and one for one in command):
        refuse(name, "'command' must be a list of strings, the program first")
    env = about.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        refuse(name, "'env' must be an object of strings")
    if not isinstance(about.get("cwd", ""), str):
        refuse(name, "'cwd' must be a string")
    sizes = {}
    for field_name, default, most in (("pool_size", 1, MOST_PROCESSES), ("line_limit", LINE_LIMIT, 1 << 30)):
        sizes[field_name] = value = about.get(field_name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            refuse(name, f"{field_name!r} must be a whole number from 1 to {most:,}")
    return ExecutorSettings(name=name, command=tuple(command), env=env, cwd=about.get("cwd") or None, **sizes)


def refuse(name: str, what: str) -> NoReturn:
    msg = f"ERGON_EXECUTORS: the executor {name!r}: {what}"
    raise ExecutorConfigurationError(msg)
