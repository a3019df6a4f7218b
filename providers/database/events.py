"""Tells callables of events, after the commit and in the process that wrote them.

The table is the truth. A callable is called at most once for an event: not at all if the process ends in between.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, TypeVar

import structlog
from django.db import transaction
from django.utils.module_loading import autodiscover_modules

from providers.core.errors import ProviderUsageError, canonical
from providers.core.events import ProviderEventNotice
from providers.database import sql

# Where each app registers its providers and callables.
MODULE = "ergon_providers"

Listener = Callable[[ProviderEventNotice], Any]
Given = TypeVar("Given", bound=Listener)

log = structlog.get_logger("ergon.providers")
_listeners: list[Listener] = []


def on_event(listener: Given) -> Given:
    """Call this with every event that this process writes; it can be used as a decorator."""
    if problem := _problem(listener):
        msg = f"{listener!r} cannot be told of events: {problem}"
        raise ProviderUsageError(msg)
    if listener not in _listeners:
        _listeners.append(listener)
    return listener


def forget(listener: Listener) -> None:
    _listeners.remove(listener)


def tell(notices: Iterable[ProviderEventNotice]) -> None:
    """Tell of events once the present transaction is committed; at once if there is none."""
    transaction.on_commit(partial(sql.call_untimed, partial(_tell, list(notices))))


def _tell(notices: list[ProviderEventNotice]) -> None:
    for listener in _known():
        for notice in notices:
            try:
                listener(notice)
            except Exception as error:  # noqa: BLE001 (of somebody else; the call goes on)
                _log("event listener failed", error, listener=_name(listener), kind=notice.kind.value)


def _known() -> list[Listener]:
    try:
        _discover()
    except Exception as error:  # noqa: BLE001 (of a module of somebody else)
        _log("event listeners could not be imported", error, module=MODULE)
    return list(_listeners)


@cache
def _discover() -> None:
    autodiscover_modules(MODULE)


def _problem(listener: Any) -> str:
    if not callable(listener):
        return "it is not callable"
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(getattr(listener, "__call__", None)):  # noqa: B004
        return "it is a coroutine function"
    try:
        inspect.signature(listener).bind(None)
    except TypeError as error:
        return f"called with one argument, {error}"
    except ValueError:  # a built-in that does not say what it takes
        return ""
    return ""


def _log(text: str, error: Exception, **about: str) -> None:
    """Without its traceback, which may hold secrets."""
    log.error(text, error_type=type(error).__name__, error=canonical(error).message, **about)


def _name(listener: Listener) -> str:
    return f"{getattr(listener, '__module__', '')}.{getattr(listener, '__qualname__', type(listener).__qualname__)}"
