"""Clients of httpx with kept-alive connections: for threads one in each process, for asyncio one in each event loop."""

import asyncio
import atexit
import os
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

import httpx

from ergon_site.access import deadlines

Options = Callable[[], dict[str, Any]]

Key = tuple[Hashable, ...]

# By process: a fork must not speak on its parent's connections.
_clients: dict[tuple[int, Key], httpx.Client] = {}
_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, tuple[httpx.AsyncClient, AsyncIterator[None]]]]
_loops = WeakKeyDictionary()


def client_for(key: Key, options: Options) -> httpx.Client:
    found = _clients.get((os.getpid(), key))
    if found is None:
        # Two threads may come here at once; the client of one of them is then used by nobody.
        found = _clients.setdefault((os.getpid(), key), deadlines.client(**options()))
    return found


async def async_client_for(key: Key, options: Options) -> httpx.AsyncClient:
    clients = _loops.setdefault(asyncio.get_running_loop(), {})
    if key not in clients:
        client = httpx.AsyncClient(**options())
        clients[key] = client, (keeper := _closed_with_the_loop(client))
        await anext(keeper)
    return clients[key][0]


async def _closed_with_the_loop(client: httpx.AsyncClient) -> AsyncIterator[None]:
    """A loop that ends closes the asynchronous generators that were begun in it, and with this one the client."""
    async with client:
        yield


def close_of(owner: object) -> None:
    """Close the clients whose keys name an owner that is gone. A loop closes its own once nobody has them."""
    for key in [key for key in _clients if key[0] == os.getpid() and owner in key[1]]:
        _clients.pop(key).close()
    for clients in list(_loops.values()):
        for name in [name for name in clients if owner in name]:
            del clients[name]


def close() -> None:
    """Close the clients of this process; the next call opens new ones."""
    mine = [key for key in _clients if key[0] == os.getpid()]
    for key in mine:
        _clients.pop(key).close()


atexit.register(close)
