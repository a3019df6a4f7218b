"""The registry of handlers: plain functions and coroutines, each under its name."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from engines.executors.protocol import ExecutionContext

F = TypeVar("F", bound=Callable[..., Any])
Handler = Callable[[ExecutionContext, list[Any], dict[str, Any]], Any]


class RetryJob(Exception):  # noqa: N818 (it reads as what a handler asks for)
    """Raised by a handler that wants to be tried again, `after` so many seconds if it knows better than the policy."""

    def __init__(self, message: str = "", after: float | None = None) -> None:
        super().__init__(message)
        self.message, self.after = message, after


class HandlerRegistry:
    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def handler(self, name: str) -> Callable[[F], F]:
        """Register a function; it receives the context first if its first parameter is called `ctx`."""
        if not isinstance(name, str) or not name:
            msg = f"a handler needs a name: @registry.handler('name'), not {name!r}"
            raise TypeError(msg)

        def register(function: F) -> F:
            if name in self._handlers:
                msg = f"there is a handler named {name!r} already"
                raise ValueError(msg)
            try:
                wants_context = next(iter(inspect.signature(function).parameters), None) == "ctx"
            except ValueError:  # some functions of C do not tell
                wants_context = False
            self._handlers[name] = lambda context, args, kwargs: function(
                *([context, *args] if wants_context else args), **kwargs
            )
            return function

        return register

    def find(self, name: str) -> Handler | None:
        return self._handlers.get(name)

    def names(self) -> list[str]:
        return sorted(self._handlers)
