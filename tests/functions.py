"""Functions that are tasks of django-tasks, for tests that run a real consumer, too."""

import asyncio
from typing import Any

from django_tasks import task


class TooSmallError(Exception):
    pass


def define(task: Any, module: str, **options: Any) -> dict[str, Any]:
    """The functions as tasks of a module, marked by one of the two interfaces."""

    def total(*numbers: int) -> int:
        return sum(numbers)

    def double(number: int, *, plus: int = 0) -> int:
        if number < 0:
            msg = f"{number} is too small"
            raise TooSmallError(msg)
        return number * 2 + plus

    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    def attempt(context: Any) -> list[Any]:
        result = context.task_result
        return [context.attempt, result.id, result.status, f"{type(context).__module__}.{type(result.task).__name__}"]

    def secret() -> object:
        return object()

    functions = {one.__name__: one for one in (total, double, wait, attempt, secret)}
    for name, function in functions.items():
        function.__module__, function.__qualname__ = module, name
    return {name: task(takes_context=name == "attempt", **options)(one) for name, one in functions.items()}


globals().update(define(task, __name__))
