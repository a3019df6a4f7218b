"""Calls commands in this process, and reads what they print."""

import io
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.core.management import call_command

from tests import warm
from tests.processes import LIMIT, environment


def run(*arguments: str) -> str:
    """What a command prints for people."""
    output = io.StringIO()
    call_command(*arguments, stdout=output)
    return output.getvalue()


def ask(*arguments: str) -> Any:
    """The JSON document that a command prints."""
    return json.loads(run(*arguments, "--json"))


def on_terminal(*arguments: str, typed: str = "", stdout: Any = None, **changes: str) -> str:
    """What a command shows on a terminal where somebody types this; its output may go elsewhere."""
    ours, theirs = os.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=_read_terminal, args=[ours, shown])
    try:
        output = theirs if stdout is None else stdout
        process = warm.start(arguments, environment(**changes), stdin=theirs, stdout=output, stderr=theirs)
        os.close(theirs)
        reader.start()
        os.write(ours, typed.encode())
        with process:
            process.wait(2 * LIMIT)
        reader.join(LIMIT)
        return b"".join(shown).decode()
    finally:
        os.close(ours)


def _read_terminal(ours: int, shown: list[bytes]) -> None:
    """Until nobody is left at the other end. Unread, a terminal keeps whoever writes much."""
    with suppress(OSError):
        while part := os.read(ours, 100_000):
            shown.append(part)


@contextmanager
def running(*arguments: str, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of its own, with pipes; killed when the block ends, if it still runs."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = warm.start(arguments, environment(**changes), **pipes)
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(LIMIT)


def next_event(process: subprocess.Popen[str], *names: str) -> dict[str, Any]:
    """The next event of one of these names that a process tells."""
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["event"] in names:
            return event
    raise AssertionError(process.stderr and process.stderr.read())


def hear(process: subprocess.Popen[str], *words: str, within: float = 2 * LIMIT) -> None:
    """Wait until a process has logged each of these, in whichever order; one that does not in time is ended."""
    assert process.stderr is not None
    missing, heard = set(words), []
    limit = threading.Timer(within, process.kill)
    limit.start()
    try:
        while missing and (line := process.stderr.readline()):
            heard.append(line)
            missing = {one for one in missing if one not in line}
    finally:
        limit.cancel()
    assert not missing, f"not logged: {missing}, but: {''.join(heard)}"
