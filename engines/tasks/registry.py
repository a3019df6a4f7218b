"""The author's contract: what a task is given, how it is named, and how it is found again."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from engines.connectors.base import AsyncConnector, Connector
from engines.core.steps import Stage
from engines.drivers.timeouts import CANCEL_GRACE, Abandoned

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class RegistryError(LookupError):
    """A name that is taken, or that nothing is registered under."""


class Stops(Protocol):
    def stop(self) -> None: ...

    def cut(self) -> None: ...


class Stoppable:
    """Whatever runs loops can be asked to stop."""

    pipeline_name: str | None = None  # set where a pipeline runs the task; spans and metrics carry it
    abandoned_grace = 30.0
    cancel_grace = CANCEL_GRACE

    def stop(self) -> None:
        """Ask every loop of this task to stop: nothing new begins, what runs is let end."""
        for driver in list(self._drivers()):
            driver.stop()

    def end(self) -> None:
        """Stop, and let no loop begin any more."""
        self.__dict__["_has_ended"] = True
        Stoppable.stop(self)

    def cut(self) -> None:
        """Wait no longer for what runs: give it back. What a thread still does counts for nothing."""
        for driver in list(self._drivers()):
            driver.cut()

    @property
    def abandoned_attempts(self) -> int:
        """The number of handlers that still run after their time limit."""
        return self.abandoned_counter().count

    def abandoned_counter(self) -> Abandoned:
        """Of the task, not of a loop: what a loop leaves behind outlives it."""
        counter: Abandoned = self.__dict__.setdefault("_abandoned_attempts", Abandoned())
        return counter

    @contextmanager
    def _running(self, driver: Stops) -> Iterator[None]:
        self._drivers().append(driver)
        if "_has_ended" in self.__dict__:  # said while this loop was on its way
            driver.stop()
        try:
            yield
        finally:
            self._drivers().remove(driver)

    def _drivers(self) -> list[Stops]:
        # Mixins have no constructor of their own to make it in.
        drivers: list[Stops] = self.__dict__.setdefault("_running_drivers", [])
        return drivers


class Task(Stoppable):
    """The base class of tasks: connectors and services by name. Tasks never build their own.

    A task that declares what it uses (`ledger_service: Ledger`, `inbox_connector: MemoryConnector`) is type-checked.
    """

    def __init__(
        self, connectors: Mapping[str, AsyncConnector] | None = None, services: Mapping[str, Any] | None = None
    ) -> None:
        self.connectors: Mapping[str, Any] = dict(connectors or {})
        self.services: Mapping[str, Any] = {} if services is None else services
        for name, connector in self.connectors.items():
            setattr(self, f"{name}_connector", connector)
        for name in self.services:
            if hasattr(type(self), f"{name}_service"):  # a default of the class, which would hide the service
                setattr(self, f"{name}_service", self.services[name])

    if not TYPE_CHECKING:  # a type checker would take every attribute for a service

        def __getattr__(self, name: str) -> Any:
            """`self.<name>_service`, looked up when it is used: some services are made when first asked for."""
            service = name.removesuffix("_service")
            if service != name and service in self.__dict__.get("services", ()):
                return self.services[service]
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg, name=name, obj=self)


def hooks_of(
    task: Any, names: Mapping[Stage, str], connector: Connector, *mixins: type, is_async: bool
) -> tuple[dict[Stage, Callable[..., Any]], frozenset[Stage]]:
    """The handler of each stage, and the stages whose hook the author of the task has left as it came."""
    handlers = {stage: getattr(task, name) for stage, name in names.items()}
    silent = frozenset(
        stage
        for stage, name in names.items()
        if any(getattr(handlers[stage], "__func__", stage) is vars(mixin).get(name) for mixin in mixins)
    )
    if not is_async:
        handlers = {stage: connector.wrap_handler(handler) for stage, handler in handlers.items()}
    return handlers, silent


class Registry:
    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._things: dict[str, Any] = {}

    def add(self, name: str, thing: Any) -> None:
        known = self._things.get(name)
        if known is not None and known is not thing and _where(known) != _where(thing):
            msg = f"the {self._noun} name {name!r} is taken by {_where(known)}"
            raise RegistryError(msg)
        self._things[name] = thing

    def find(self, name: str) -> Any:
        try:
            return self._things[name]
        except KeyError:
            there = ", ".join(sorted(self._things)) or "none"
            msg = f"there is no {self._noun} named {name!r}; there are: {there}"
            raise RegistryError(msg) from None

    def names(self) -> list[str]:
        return sorted(self._things)

    def register(self, name: str) -> Callable[[T], T]:
        def register(thing: T) -> T:
            self.add(name, thing)
            return thing

        return register


tasks = Registry("task")
services = Registry("service")
connectors = Registry("connector")


def task(name: str) -> Callable[[C], C]:
    """Register a task class under a name: `@engines.task("invoices.import")`."""
    return tasks.register(name)


def service(name: str) -> Callable[[F], F]:
    """Register a factory of a service under a name: `@engines.service("mail")`."""
    return services.register(name)


def connector(name: str) -> Callable[[F], F]:
    """Register a factory of connectors under a name: `@engines.connector("inbox")`. It is given a pipeline's name."""
    return connectors.register(name)


def _where(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
