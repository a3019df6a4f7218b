"""The Python executor as a real process, driven over its pipes."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.processes import LIMIT, ROOT, eventually

FIELDS = {"job_id", "status", "result", "error_message", "error_type", "retry_after_seconds"}


class Driven:
    """Its process, what it answers, and what it says."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._stdout, self._stderr = io.BufferedReader(process.stdout), io.BufferedReader(process.stderr)  # type: ignore[type-var]
        self.said: list[str] = []
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()

    def _listen(self) -> None:
        for line in self._stderr:
            self.said.append(line.decode(errors="replace").rstrip("\n"))

    def send(self, line: bytes) -> None:
        self.process.stdin.write(line)  # type: ignore[union-attr]

    def answer(self) -> dict[str, Any]:
        """The next line; there is one within the limit, or the test fails for want of JSON."""
        watch = threading.Timer(LIMIT, self.process.kill)
        watch.start()
        try:
            line = self._stdout.readline()
        finally:
            watch.cancel()
        told: dict[str, Any] = json.loads(line)
        assert set(told) == FIELDS
        return told

    def rest(self) -> bytes:
        return self._stdout.read()

    def ask(self, function: str, *args: Any, **about: Any) -> dict[str, Any]:
        self.send(request(function, *args, **about))
        return self.answer()

    def heard(self, text: str) -> None:
        eventually(lambda: any(text in line for line in self.said), f"{text!r} on stderr")

    def end(self) -> int:
        """The end of its input, and how it ends then."""
        self.process.stdin.close()  # type: ignore[union-attr]
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(LIMIT)
        self._ear.join(LIMIT)
        return code


@contextmanager
def executor(handlers: str = "tests.executors.handlers", *options: str, **env: str) -> Iterator[Driven]:
    command = [sys.executable, *options, "-m", "engines.executors", "--handlers", handlers]
    pipe = subprocess.PIPE
    environment = {"PATH": os.environ["PATH"], **env}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, cwd=ROOT, env=environment) as one:
        driven = Driven(one)
        try:
            yield driven
        finally:
            one.kill()
            driven.wait()  # else its pipe would be closed while a thread still reads it


def request(function: str, *args: Any, job_id: str = "t0", kwargs: Any = None, **context: Any) -> bytes:
    if isinstance(seconds := context.get("deadline"), int | float):
        context["deadline"] = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    told = {"protocol_version": "1", "job_id": job_id, "function_name": function, "args": args, "kwargs": kwargs or {}}
    return json.dumps({**told, "context": {"job_id": job_id, "attempt": 1, **context}}).encode() + b"\n"
