"""The base of providers that speak HTTP: a subclass says what to ask, and how to read the answer."""

import asyncio
import weakref
from collections.abc import Hashable, Mapping
from contextlib import aclosing, closing
from functools import cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import PurePath
from typing import Any, ClassVar
from urllib.parse import quote

import httpx

from ergon_site.access.deadlines import within
from providers import telemetry
from providers.adapters.answers import Body, Hidden, cause_of, silence, understood
from providers.adapters.clients import Key, async_client_for, client_for, close_of
from providers.base import ProviderBase
from providers.core.errors import canonical
from providers.core.exchange import ProviderExecutionContext

MEBIBYTE = 1024 * 1024
EARLIER = 1.0
PLAIN = str | bytes | int | float | PurePath | None


class HttpProvider(ProviderBase):
    """A capability of a provider that is called over HTTP.

    A subclass has a `base_url` and, mostly, `request` and `read`. Connections are kept open, for threads by process and
    for asyncio by event loop; cookies are not kept. An attempt has `context.timeout` seconds for all that it does.
    """

    base_url: str = ""
    connect_timeout: ClassVar[float] = 5.0
    max_connections: ClassVar[int] = 100
    max_answer_bytes: ClassVar[int] = 10 * MEBIBYTE
    follow_redirects: ClassVar[bool] = False
    # The header in which the idempotency key of a request goes out, where the provider knows one.
    idempotency_header: ClassVar[str | None] = None

    def request(self, operation: str, payload: dict[str, Any]) -> httpx.Request:
        """The request to send; an address without a host is below `base_url`."""
        return httpx.Request("POST", f"/{quote(operation)}", json=payload)

    def read(self, response: httpx.Response) -> dict[str, Any]:
        """The content of a successful answer; any error raised here makes the answer invalid."""
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer

    def headers_for(self, tenant_id: str) -> Mapping[str, str]:
        """Headers of every request, credentials among them. Their values are kept out of errors and logs."""
        return {}

    def client_options(self) -> dict[str, Any]:
        """The options of HTTP clients; `verify`, `cert` and `proxy` of httpx may be added.

        Instances of a class share their clients if they are made of the same plain values, or do not override this.
        """
        return {
            "base_url": self.base_url,
            "follow_redirects": self.follow_redirects,
            "limits": httpx.Limits(
                max_connections=self.max_connections, max_keepalive_connections=self.max_connections
            ),
            # One client serves all tenants: what a provider keeps in a cookie for one is none of another's.
            "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        }

    def _client_key(self) -> Key:
        is_own = type(self).client_options is not HttpProvider.client_options
        terms = (self._made_of,) if is_own else (self.follow_redirects, self.max_connections)
        return type(self), self.base_url, *terms

    @cached_property
    def _made_of(self) -> Hashable:
        """What the options may depend on, as of the first call: plain values, or else an owner that only it has."""
        values = tuple(sorted(vars(self).items()))
        if _is_plain(values):
            return values
        owner = object()
        weakref.finalize(self, close_of, owner).atexit = False
        return owner

    def _execute_impl(self, *, context: ProviderExecutionContext, **asked: Any) -> dict[str, Any]:
        client = client_for(self._client_key(), self.client_options)
        request = self._request_of(client, context, **asked)
        hidden = Hidden(request)
        try:
            with within(context.timeout), closing(client.send(request, stream=True)) as response:
                body = Body(response, self.max_answer_bytes)
                with body.cut_off():
                    for chunk in response.iter_raw():
                        if not body.takes(chunk):
                            break
                content = body.whole()
        except Exception as error:  # noqa: BLE001 (whatever it is becomes one of ours)
            raise silence(error, hidden, may_have_left=self.follow_redirects) from cause_of(error, hidden)
        return understood(response, content, self.read, hidden)

    async def _aexecute_impl(self, *, context: ProviderExecutionContext, **asked: Any) -> dict[str, Any]:
        client = await async_client_for(self._client_key(), self.client_options)
        request = self._request_of(client, context, **asked)
        hidden = Hidden(request)
        limit = context.timeout
        # A little before the attempt is cut, so that a failure whose explanation is slow is still told as that failure.
        ends_at = None if limit is None else asyncio.get_running_loop().time() + limit - min(limit / 4, EARLIER)
        try:
            async with aclosing(await client.send(request, stream=True)) as response:
                body = Body(response, self.max_answer_bytes)
                with body.cut_off():
                    async with asyncio.timeout_at(ends_at):
                        async for chunk in response.aiter_raw():
                            if not body.takes(chunk):
                                break
                content = body.whole()
        except Exception as error:  # noqa: BLE001 (whatever it is becomes one of ours)
            raise silence(error, hidden, may_have_left=self.follow_redirects) from cause_of(error, hidden)
        return understood(response, content, self.read, hidden)

    def _request_of(
        self,
        client: httpx.Client | httpx.AsyncClient,
        context: ProviderExecutionContext,
        *,
        tenant_id: str,
        operation: str,
        payload: dict[str, Any],
        **_about: Any,
    ) -> httpx.Request:
        try:
            asked = self.request(operation, payload)
            encodings = {"accept-encoding": "gzip, deflate"}
            headers = {**encodings, **telemetry.carried(), **self.headers_for(tenant_id), **asked.headers}
            # It names the host of an address that has none yet.
            headers.pop("host", None)
            key = context.idempotency_key
            if self.idempotency_header and key:
                headers[self.idempotency_header] = key if key.isascii() and key.isprintable() else quote(key)
            limit = context.timeout
            connect = self.connect_timeout if limit is None else min(self.connect_timeout, limit)
            return client.build_request(
                asked.method,
                asked.url,
                headers=headers,
                content=asked.read(),
                extensions=asked.extensions,
                timeout=httpx.Timeout(limit, connect=connect),
            )
        except Exception as error:  # noqa: BLE001 (a hook may raise anything)
            mistake = canonical(error)
            mistake.never_left = True
            raise mistake from mistake.__cause__


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, PLAIN)
