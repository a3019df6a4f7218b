"""Handlers that try what handlers should not."""

import asyncio
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from engines.executors import ExecutionContext, HandlerRegistry, RetryJob

print("printed while it was imported")

registry = HandlerRegistry()


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@registry.handler("decorated")
@logged
async def decorated(ctx: ExecutionContext, number: int) -> list[Any]:
    await asyncio.sleep(0)
    return [ctx.job_id, number]


registry.handler("partial")(functools.partial(pow, 2))
registry.handler("builtin")(max)


@registry.handler("read")
def read() -> list[Any]:
    """The input belongs to the protocol: nobody else finds anything in it."""
    return [sys.stdin.read(), subprocess.run(["cat"], capture_output=True, check=True).stdout.decode()]


@registry.handler("unended")
def unended() -> str:
    print("no end of line", end="")
    sys.stdout.write("nor here")
    return "said"


@registry.handler("child_prints")
def child_prints() -> str:
    subprocess.run(["echo", "said by a child"], check=True)
    return "said"


@registry.handler("close_everything")
def close_everything() -> str:
    sys.stdout.close()
    os.close(1)
    return "closed"


@registry.handler("leave_async")
async def leave_async() -> None:
    sys.exit(4)


@registry.handler("block_async")
async def block_async(seconds: float, said: str = "") -> str:
    print(said)
    time.sleep(seconds)  # noqa: ASYNC251 (that is the point)
    return "blocked"


@registry.handler("block_callback")
async def block_callback(seconds: float) -> None:
    """Asked to stop, it goes on, and what blocks is a callback of the loop."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(seconds)
    asyncio.get_running_loop().call_soon(time.sleep, seconds)
    await asyncio.sleep(seconds)


@registry.handler("refuse_to_end")
async def refuse_to_end(seconds: float) -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds)


@registry.handler("tidy_async")
async def tidy_async(mark: str) -> None:
    """Ends in the usual way when its time is up."""
    try:
        await asyncio.sleep(1000)
    finally:
        with open(mark, "w") as file:  # noqa: ASYNC230, PTH123
            file.write("tidied")


@registry.handler("loop_id")
async def loop_id() -> int:
    return id(asyncio.get_running_loop())


class Odd(RetryJob):
    def __init__(self) -> None:
        Exception.__init__(self, "odd")


class Mute(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise ZeroDivisionError


RAISED: dict[str, Callable[[], BaseException]] = {
    "odd retry": Odd,
    "mute": Mute,
    "generator exit": GeneratorExit,
    "interrupt": KeyboardInterrupt,
    "base": lambda: BaseException("base"),
    "timeout": lambda: TimeoutError("mine"),
    "nothing said": ValueError,
    "long": lambda: ValueError("x" * 20_000_000),
    "surrogate": lambda: ValueError("\ud800"),
    **{f"retry {after}": functools.partial(RetryJob, "later", after=after) for after in (-1, 10**400, float("nan"))},
}


@registry.handler("raise")
def raise_it(name: str) -> None:
    error = RAISED[name]()
    raise error


@registry.handler("raise_async")
async def raise_async(name: str) -> None:
    error = RAISED[name]()
    raise error


@registry.handler("result")
def result(name: str) -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return {
        "nan": float("nan"),
        "set": {1},
        "circle": loop,
        "large": "x" * 17_000_000,
        "digits": 10**5000,
        "surrogate": "\ud800",
        "coroutine": asyncio.sleep,
    }[name]


@registry.handler("linger")
def linger() -> str:
    """Leaves a thread behind that does not end."""
    threading.Thread(target=time.sleep, args=[1000]).start()
    return "left one behind"


@registry.handler("modules")
def modules() -> list[str]:
    return sorted(sys.modules)
