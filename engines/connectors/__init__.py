"""Sources and sinks of transactions."""

from collections.abc import Iterable, Mapping
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


def checked(fetched: Any, size: int) -> list[Transaction]:
    """What a connector returned, if it is what was asked for."""
    if not isinstance(fetched, Iterable) or isinstance(fetched, str | bytes | Mapping):
        msg = f"the connector returned {type(fetched).__name__} where a list of transactions was expected"
        raise FetchException(msg)
    batch = list(fetched)
    for item in batch:
        if not isinstance(item, Transaction):
            msg = f"the connector returned {type(item).__name__} in a list of transactions"
            raise FetchException(msg)
    if len(batch) > size:
        msg = f"the connector returned {len(batch)} transactions where at most {size} were asked for"
        raise FetchException(msg)
    return batch


def transactions_in(fetched: Any) -> list[Transaction]:
    """The transactions in whatever a connector returned, so that none of them is lost with the rest."""
    return [item for item in fetched if isinstance(item, Transaction)] if isinstance(fetched, list | tuple) else []


def _listed(connectors: Mapping[str, Any]) -> str:
    return ", ".join(sorted(connectors)) or "none"
