"""Speaks to a boundary over HTTP, for producers and consumers; needs httpx and nothing else, no Django.

    with BoundaryClient("https://plant.example", token) as client:
        client.append({"envelope": {…}, "fact": {…}})

`AsyncBoundaryClient` is the same with `await`. The rules are those of `facts.core.exchange`; here they are performed.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import wraps
from http import HTTPStatus
from typing import IO, Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from urllib.parse import quote

import httpx

from ergon_site.access import deadlines
from ergon_site.access.signals import StopEvent
from facts.core import steps as rules
from facts.core.errors import FactError, ProvisioningError, UnreachableError
from facts.core.exchange import CHUNK, Exchange, Steps
from facts.core.peers import is_token
from facts.core.steps import Answer, Appended, Ask, Fetched, Hand, NoAnswerError, Page, Pause, Reader, Stored

__all__ = [
    "Appended",
    "AsyncBoundaryClient",
    "BoundaryClient",
    "Download",
    "FactError",
    "Fetched",
    "Page",
    "Reader",
    "Stored",
]

API = "/api/v1"
CONNECT = 5.0
# What a client asks for; of another encoding, or of several, a small answer could hold one without end.
ENCODING = "gzip"
# A boundary sends at most half of it.
LONGEST_ANSWER = 64 * 1024 * 1024
# No connection, an answer that breaks off or cannot be decoded; and what cannot even be asked.
FAULTS = (httpx.RequestError, httpx.InvalidURL)

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)
Rule = Callable[Concatenate[Exchange, P], Steps[T]]


def _waiting(rule: "Rule[P, T]") -> "Callable[Concatenate[BoundaryClient, P], T]":
    @wraps(rule)
    def verb(client: "BoundaryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        steps = rule(client._exchange, *args, **kwargs)  # noqa: SLF001
        try:
            step = next(steps)
            while True:
                try:
                    outcome = client._do(step)  # noqa: SLF001
                except Exception as error:  # noqa: BLE001 (the rule decides what it means)
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    return verb


def _awaiting(rule: "Rule[P, T]") -> "Callable[Concatenate[AsyncBoundaryClient, P], Awaitable[T]]":
    @wraps(rule)
    async def verb(client: "AsyncBoundaryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        steps = rule(client._exchange, *args, **kwargs)  # noqa: SLF001
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await client._do(step)  # noqa: SLF001
                except Exception as error:  # noqa: BLE001 (the rule decides what it means)
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    return verb


class Download:
    """The bytes of an artifact as they arrive; compare their SHA-256 with the fact's before you use them."""

    def __init__(self, response: httpx.Response) -> None:
        self.media_type = response.headers.get("Content-Type", "application/octet-stream")
        self._chunks, self._rest = response.iter_raw(), b""

    def read(self, size: int, /) -> bytes:
        """At most that many bytes; none at the end."""
        try:
            chunk = self._rest or next(self._chunks, b"")
        except FAULTS as error:
            msg = f"the download broke off: {_silence(error)}"
            raise UnreachableError(msg) from error
        self._rest = chunk[size:]
        return chunk[:size]


class _Client(Generic[H]):
    """Both clients have this in common."""

    def __init__(self, http: Callable[..., H], url: str, token: str, consumer: str | None) -> None:
        if not is_token(token):
            msg = "the token holds characters that no token has"  # and that are not to be told
            raise ProvisioningError(msg)
        base = url.rstrip("/").removesuffix(API) + API
        try:
            self._http: H = http(
                base_url=base, headers={"Authorization": f"Bearer {token}", "Accept-Encoding": ENCODING}
            )
        except httpx.InvalidURL as error:
            msg = f"{url!r} is not the address of a boundary: {error}"
            raise ProvisioningError(msg) from error
        self._exchange = Exchange(consumer)
        self._end_is_wanted: Any = None

    def stop(self) -> None:
        """Let `consume` end: after the fact at hand, or the wait for the next one."""
        self._exchange.is_stopping = True
        self._end_is_wanted.set()


class BoundaryClient(_Client[httpx.Client]):
    """For threads. Any number of them may share one, but for `consume`, which is one at a time."""

    put_object = _waiting(Exchange.put_object)
    append = _waiting(Exchange.append)
    append_many = _waiting(Exchange.append_many)
    append_with_artifact = _waiting(Exchange.append_with_artifact)
    look_up = _waiting(Exchange.look_up)
    consumers = _waiting(Exchange.consumers)
    reader = _waiting(Exchange.reader)
    fetch = _waiting(Exchange.fetch)
    confirm = _waiting(Exchange.confirm)
    consume = _waiting(Exchange.consume)

    def __init__(self, url: str, token: str, *, consumer: str | None = None) -> None:
        super().__init__(deadlines.client, url, token, consumer)
        self._end_is_wanted = StopEvent()

    @contextmanager
    def open_object(self, bucket: str, key: str) -> Iterator[Download]:
        """Download an artifact. Tried once: a download that breaks off is begun again by the caller."""
        path = f"/objects/{quote(bucket, safe='')}/{quote(key)}"
        ask = Ask("GET", path, headers={"Accept-Encoding": "identity"})
        with _answering():
            response = self._http.send(self._http.build_request(**_request(ask)), stream=True)
        with closing(response):
            if response.status_code != HTTPStatus.OK:
                with _answering():
                    refusal = _read(response)
                rules.read(refusal, lambda _: None)
            yield Download(response)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, step: Ask | Pause | Hand) -> Any:
        match step:
            case Hand(handler, fact):
                return handler(fact)
            case Pause(seconds):
                return self._end_is_wanted.wait(seconds)
        try:
            with self._http.stream(content=step.content, **_request(step)) as response:
                return _read(response)
        except FAULTS as error:
            raise _silence(error) from error


class AsyncBoundaryClient(_Client[httpx.AsyncClient]):
    """For asyncio; a handler may be a coroutine function."""

    put_object = _awaiting(Exchange.put_object)
    append = _awaiting(Exchange.append)
    append_many = _awaiting(Exchange.append_many)
    append_with_artifact = _awaiting(Exchange.append_with_artifact)
    look_up = _awaiting(Exchange.look_up)
    consumers = _awaiting(Exchange.consumers)
    reader = _awaiting(Exchange.reader)
    fetch = _awaiting(Exchange.fetch)
    confirm = _awaiting(Exchange.confirm)
    consume = _awaiting(Exchange.consume)

    def __init__(self, url: str, token: str, *, consumer: str | None = None) -> None:
        super().__init__(httpx.AsyncClient, url, token, consumer)
        self._end_is_wanted = asyncio.Event()

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, step: Ask | Pause | Hand) -> Any:
        match step:
            case Hand(handler, fact):
                handled = handler(fact)
                return await handled if inspect.isawaitable(handled) else handled
            case Pause(seconds):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._end_is_wanted.wait(), seconds)
                return None
        is_plain = step.content is None or isinstance(step.content, bytes)
        content = step.content if is_plain else _chunks(step.content)
        try:
            async with self._http.stream(content=content, **_request(step)) as response:
                body = _Body(response)
                async for chunk in response.aiter_bytes():
                    body.take(chunk)
                return body.answer()
        except FAULTS as error:
            raise _silence(error) from error


def _request(ask: Ask) -> dict[str, Any]:
    return {
        "method": ask.method,
        "url": ask.path,
        "headers": dict(ask.headers),
        "params": dict(ask.params),
        "timeout": httpx.Timeout(ask.timeout, connect=CONNECT),
    }


class _Body:
    """The body of an answer as it arrives: all of it, or an error."""

    def __init__(self, response: httpx.Response) -> None:
        self._response, self._parts, self._size = response, list[bytes](), 0
        encoding = response.headers.get("Content-Encoding", ENCODING).lower()
        if encoding not in {ENCODING, "identity"}:
            msg = f"the answer has an encoding that was not asked for: {encoding[:50]}"
            raise httpx.DecodingError(msg)

    def take(self, chunk: bytes) -> None:
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._size > LONGEST_ANSWER:
            msg = f"the answer is longer than {LONGEST_ANSWER:,} bytes"
            raise httpx.DecodingError(msg)

    def answer(self) -> Answer:
        return Answer(self._response.status_code, b"".join(self._parts), self._response.headers.get("Retry-After"))


def _read(response: httpx.Response) -> Answer:
    body = _Body(response)
    for chunk in response.iter_bytes():
        body.take(chunk)
    return body.answer()


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        msg = f"the boundary does not answer: {_silence(error)}"
        raise UnreachableError(msg) from error


def _silence(error: Exception) -> Exception:
    if isinstance(error, httpx.InvalidURL):
        return ProvisioningError(f"the boundary has no such address: {error}")
    if isinstance(error, httpx.LocalProtocolError):
        # Its text repeats the header at fault, and headers hold tokens.
        return ProvisioningError("the request cannot be sent as HTTP")
    return NoAnswerError(str(error) or type(error).__name__)


async def _chunks(file: Any) -> AsyncIterator[bytes]:
    reading: IO[bytes] = file
    while chunk := await asyncio.to_thread(reading.read, CHUNK):
        yield chunk
