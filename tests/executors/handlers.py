"""Handlers for tests, run by the Python executor in a process of its own."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engines.executors import ExecutionContext, HandlerRegistry, RetryJob

registry = HandlerRegistry()


@registry.handler("echo")
def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": list(args), "kwargs": kwargs}


@registry.handler("variables")
def variables() -> list[str]:
    """The names of the variables that its process has."""
    return sorted(os.environ)


@registry.handler("pid")
def pid() -> int:
    return os.getpid()


@registry.handler("context")
def context(ctx: ExecutionContext, *args: Any) -> dict[str, Any]:
    return {
        "job_id": ctx.job_id,
        "attempt": ctx.attempt,
        "queue_name": ctx.queue_name,
        "worker_id": ctx.worker_id,
        "has_deadline": ctx.deadline is not None,
        "remaining": ctx.remaining,
        "trace_context": dict(ctx.trace_context),
        "args": list(args),
    }


@registry.handler("sleep")
def sleep(seconds: float, said: str = "") -> str:
    print(said)  # on stderr, where a test can hear that it has begun
    time.sleep(seconds)
    return "slept"


@registry.handler("mumble")
def mumble() -> None:
    """Says what no column of PostgreSQL takes."""
    print("a \0 b")


@registry.handler("sleep_async")
async def sleep_async(seconds: float, said: str = "") -> str:
    print(said)
    await asyncio.sleep(seconds)
    return "slept"


@registry.handler("stubborn")
def stubborn(seconds: float, said: str = "") -> str:
    """Takes every order to stop for an accident."""
    print(said)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(until - time.monotonic())
        except BaseException:  # noqa: BLE001, S112
            continue
    return "awake"


@registry.handler("fail")
def fail(message: str) -> None:
    raise ValueError(message)


@registry.handler("retry")
def retry(ctx: ExecutionContext, times: int, after: float | None = None) -> str:
    if ctx.attempt <= times:
        msg = f"not yet, it is attempt {ctx.attempt}"
        raise RetryJob(msg, after=after)
    return f"done at attempt {ctx.attempt}"


@registry.handler("time_out")
def time_out() -> None:
    msg = "the other side is slow"
    raise TimeoutError(msg)


@registry.handler("leave")
def leave() -> None:
    sys.exit(3)


@registry.handler("die")
def die(code: int = 9) -> None:
    os._exit(code)


@registry.handler("print")
def say(*lines: str) -> str:
    for line in lines:
        print(line)
        os.write(1, f"{line}, from below\n".encode())
    return "said"


@registry.handler("set")
def a_set() -> set[int]:
    return {1}


@registry.handler("burn")
def burn(seconds: float) -> int:
    """Keep a core busy."""
    until, count = time.process_time() + seconds, 0
    while time.process_time() < until:
        count += 1
    return count


@registry.handler("spawn")
def spawn(mark: str) -> None:
    """A grandchild that holds the pipes and does not go by itself."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(mark).write_text(str(child.pid))
    time.sleep(1000)


@registry.handler("spawn_daemon")
def spawn_daemon(mark: str) -> None:
    """A process in a session of its own, whose parent has ended."""
    subprocess.run(["setsid", "sh", "-c", 'sleep 1000 & echo $! > "$0"', mark], check=True)
    time.sleep(1000)


@registry.handler("wait_for")
def wait_for(path: str) -> str:
    """Takes until a file is there."""
    while not Path(path).exists():
        time.sleep(0.02)
    return "there"


@registry.handler("overlap")
def overlap(path: str) -> None:
    leave_mark(path, "begin")
    time.sleep(0.1)
    leave_mark(path, "end")


@registry.handler("mark")
def leave_mark(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@registry.handler("mark_and_fail")
def mark_and_fail(ctx: ExecutionContext, path: str) -> None:
    leave_mark(path, str(ctx.attempt))
    fail("no luck")
