"""Sources and sinks of transactions."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from engines.core.errors import ConnectorError, FetchException
from engines.transaction import Transaction


def choose(connectors: Mapping[str, Any], name: str | None) -> Any:
    """The connector of that name, or the only one there is."""
    if name is not None:
        if name not in connectors:
            msg = f"there is no connector named {name!r}; there are: {_listed(connectors)}"
            raise ConnectorError(msg)
        return connectors[name]
    if len(connectors) != 1:
        problem = f"has several ({_listed(connectors)})" if connectors else "has none"
        msg = f"the task needs one connector to fetch from and {problem}: name one in steps.fetch.connector_name"
        raise ConnectorError(msg)
    return next(iter(connectors.values()))


def offers(connector: Any) -> dict[str, Any]:
    """What a connector can do besides giving transactions, for a threaded task."""
    found = _found(connector, "")
    for name in _CALLED:
        if inspect.iscoroutinefunction(found[name]):
            msg = f"{type(connector).__name__}.{name} is a coroutine function, which a threaded task cannot await"
            raise ConnectorError(msg)
    return found


def offers_async(connector: Any) -> dict[str, Any]:
    """The same for an async task; what only takes a note is the same function for both.

    What a connector has as a plain method alone is called in a thread, so that it does not keep the event loop.
    """
    found = _found(connector, "_async")
    plain = {name: getattr(connector, name, None) for name in _CALLED if found[name] is None}
    return found | {name: _awaited(method) for name, method in plain.items() if method is not None}


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    return method if inspect.iscoroutinefunction(method) else partial(asyncio.to_thread, method)


def _found(connector: Any, suffix: str) -> dict[str, Any]:
    # Names that an author may well use for something of their own count only where the connector says so.
    declared = set(getattr(connector, "ergon_offers", ()))
    called = [*_CALLED, *(name for name in _CALLED_IF_DECLARED if name in declared)]
    plain = [*_EITHER, *(name for name in _EITHER_IF_DECLARED if name in declared)]
    found = {name: getattr(connector, f"{name}{suffix}", None) for name in called}
    return found | {name: getattr(connector, name) for name in plain if hasattr(connector, name)}


_CALLED = ("acknowledge", "release", "count", "flush")
_CALLED_IF_DECLARED = ("begin",)
_EITHER = ("note",)
_EITHER_IF_DECLARED = (
    "is_lost",
    "on_lost",
    "spent",
    "on_arrival",
    "policy_in_force",
    "policy_version",
    "is_postponing",
    "slots",
)


def take(fetched: Any, into: list[Any]) -> None:
    """Put what a connector returned into a list, one by one, so that none is lost if it fails midway."""
    if not isinstance(fetched, Iterable) or isinstance(fetched, str | bytes | Mapping):
        hint = "; where there are none, return an empty list" if fetched is None else ""
        msg = f"the connector returned {type(fetched).__name__} where a list of transactions was expected{hint}"
        raise FetchException(msg)
    into.extend(fetched)


def check(batch: list[Any], size: int) -> None:
    """Refuse a batch that is not what was asked for."""
    for item in batch:
        if not isinstance(item, Transaction):
            msg = f"the connector returned {type(item).__name__} in a list of transactions"
            raise FetchException(msg)
    if len(batch) > size:
        msg = f"the connector returned {len(batch)} transactions where at most {size} were asked for"
        raise FetchException(msg)


def transactions_in(batch: list[Any]) -> list[Transaction]:
    """The transactions in a batch, so that none of them is lost with the rest."""
    return [item for item in batch if isinstance(item, Transaction)]


def _listed(connectors: Mapping[str, Any]) -> str:
    return ", ".join(sorted(connectors)) or "none"
