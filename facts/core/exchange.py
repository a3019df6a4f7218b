"""The requests of a client of the boundary, its retries, and how it reads the steps.

Written once as generators that yield what is to be done; a client performs it, waiting or awaiting.
"""

import base64
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import IO, Any, TypeAlias, TypeVar
from urllib.parse import quote

from facts.core import steps
from facts.core.errors import FactError, InvalidFactError, PayloadTooLargeError, ProvisioningError, UnreachableError
from facts.core.steps import PATIENCE, Appended, Ask, Fetched, Hand, NoAnswerError, Page, Pause, Reader, Stored

# After a failure, at once; then a little later each time.
WAITS = (0.0, 0.1, 0.2)
MOST_AT_ONCE = 1000
MOST_BYTES_AT_ONCE = 4 * 1024 * 1024
LONGEST_PAUSE = 5.0
CHUNK = 1024 * 1024

T = TypeVar("T")
Steps: TypeAlias = Generator[Ask | Pause | Hand, Any, T]
Draft: TypeAlias = Mapping[str, Any]


class Exchange:
    """The rules, for one client."""

    def __init__(self, consumer: str | None = None) -> None:
        self._consumer = consumer
        self.is_stopping = False

    def put_object(
        self, bucket: str, key: str, content: "bytes | IO[bytes]", *, media_type: str = "application/octet-stream"
    ) -> Steps[Stored]:
        """Store an artifact: bytes, or a file that can be read again from where it stands."""
        digest, size = _measured(content)
        headers = {"Content-Type": media_type, "Content-Digest": f"sha-256=:{digest}:", "Content-Length": str(size)}
        path = f"/objects/{quote(bucket, safe='')}/{quote(key)}"
        return (yield from _insist(Ask("PUT", path, content, headers), steps.stored))

    def append(self, draft: Draft) -> Steps[Appended]:
        """Append `{envelope, fact}`. A failure is followed by up to three more tries with the very same bytes."""
        return (yield from _insist(_post("/facts", _written(draft)), steps.appended))

    def append_many(self, drafts: Iterable[Draft]) -> Steps[list[Appended | FactError]]:
        """Append many, each on its own: for each where it stands, or the error that `append` would have raised."""
        results = list[Appended | FactError]()
        for chunk in _chunks(map(_written, drafts)):
            results += yield from self._append_chunk(chunk)
        return results

    def _append_chunk(self, chunk: list[bytes]) -> Steps[list[Appended | FactError]]:
        """In one request, or in several where the boundary finds it too large: then it has kept none of them."""
        body = b'{"facts":[' + b",".join(chunk) + b"]}"
        try:
            return (yield from _insist(_post("/facts/batch", body), steps.results))
        except PayloadTooLargeError as error:
            if len(chunk) == 1:
                return [error]
        middle = len(chunk) // 2
        first = yield from self._append_chunk(chunk[:middle])
        return first + (yield from self._append_chunk(chunk[middle:]))

    def append_with_artifact(
        self,
        draft: Draft,
        bucket: str,
        key: str,
        content: "bytes | IO[bytes]",
        *,
        media_type: str = "application/octet-stream",
    ) -> Steps[Appended]:
        """Store the artifact, and once it is safe append the fact, with the reference in its `object_json`."""
        stored = yield from self.put_object(bucket, key, content, media_type=media_type)
        about = {**(draft["fact"].get("object_json") or {}), **stored._asdict()}
        return (yield from self.append({**draft, "fact": {**draft["fact"], "object_json": about}}))

    def look_up(self, message_id: str, from_zone: str, to_zone: str) -> Steps[Fetched]:
        """The fact that was appended under this id; for a producer that does not remember."""
        zones = {"from_zone": from_zone, "to_zone": to_zone}
        ask = Ask("GET", f"/facts/{quote(message_id, safe='')}", params=zones)
        return (yield from _insist(ask, steps.fetched))

    def consumers(self) -> Steps[list[str]]:
        """The names of the consumers that this token may read as."""
        return (yield from _insist(Ask("GET", "/client"), _consumers))

    def reader(self, consumer: str | None = None) -> Steps[Reader]:
        """The position of a consumer."""
        name = yield from self._named(consumer)
        return (yield from _insist(Ask("GET", f"/consumers/{quote(name, safe='')}"), steps.reader))

    def fetch(self, limit: int = 100, wait: float = 0.0, *, consumer: str | None = None) -> Steps[Page]:
        """The facts after the cursor, in order; with `wait`, seconds to wait for the first. Nothing changes by it."""
        name = yield from self._named(consumer)
        return (yield from _insist(_fetching(name, limit, wait), steps.page))

    def confirm(self, offset: int, *, consumer: str | None = None) -> Steps[int]:
        """Everything up to here has been dealt with; where the cursor stands now."""
        name = yield from self._named(consumer)
        return (yield from _insist(_confirming(name, offset), _cursor))

    def consume(
        self,
        handler: Callable[[Fetched], Any],
        *,
        limit: int = 100,
        wait: float = 5.0,
        until_empty: bool = False,
        consumer: str | None = None,
    ) -> Steps[int]:
        """Fetch, handle, confirm, in order, until `stop`, or until there is nothing left; how many were handled.

        What the handler raises ends it; what was handled before is confirmed. A boundary that does not answer is asked
        again until it does, or until `stop`.
        """
        name = yield from self._named(consumer, self._is_over)
        fetching, handled = _fetching(name, limit, 0.0 if until_empty else wait), 0
        while not self.is_stopping:
            page = yield from self._until_answered(fetching, steps.page)
            if page is None or (until_empty and not page.facts):
                break
            handled += yield from self._handle(page, handler, name)
            if not page.facts:
                # A boundary on which many wait answers some of them at once.
                yield Pause(WAITS[-1])
        return handled

    def _handle(self, page: Page, handler: Callable[[Fetched], Any], name: str) -> Steps[int]:
        done, count = page.cursor, 0
        try:
            for fact in page.facts:
                if self.is_stopping:
                    break
                yield Hand(handler, fact)
                done, count = fact.offset, count + 1
        except Exception:
            # If that fails the same facts come again: what the handler raised matters more.
            with suppress(FactError):
                if count:
                    yield from _insist(_confirming(name, done), _cursor, self._is_over)
            raise
        if count:
            yield from self._until_answered(_confirming(name, done), _cursor)
        return count

    def _until_answered(self, ask: Ask, parse: Callable[[Any], T]) -> Steps[T | None]:
        """None if somebody wanted an end before there was an answer."""
        pause = WAITS[-1]
        while True:
            try:
                return (yield from _insist(ask, parse, self._is_over))
            except FactError as error:
                if not error.may_pass:
                    raise
            yield Pause(pause)
            if self.is_stopping:
                return None
            pause = min(2 * pause, LONGEST_PAUSE)

    def _is_over(self) -> bool:
        return self.is_stopping

    def _named(self, consumer: str | None, is_over: Callable[[], bool] = lambda: False) -> Steps[str]:
        """The consumer that was named, or the only one that the token is for."""
        name = consumer or self._consumer
        if name is None:
            names = yield from _insist(Ask("GET", "/client"), _consumers, is_over)
            if len(names) != 1:
                told = ", ".join(sorted(names)) or "none"
                msg = f"name the consumer to read as; the token is for: {told}"
                raise ProvisioningError(msg)
            name = self._consumer = names[0]
        return name


def _insist(ask: Ask, parse: Callable[[Any], T], is_over: Callable[[], bool] = lambda: False) -> Steps[T]:
    """Ask, and ask again after a failure that may pass; not what was refused, nor when it is over."""
    start = None if isinstance(ask.content, bytes | None) else ask.content.tell()
    for wait in WAITS:
        try:
            return (yield from _once(ask, parse, start))
        except FactError as error:
            if not error.may_pass:
                raise
            yield Pause(wait)
            if is_over():
                raise
    return (yield from _once(ask, parse, start))


def _once(ask: Ask, parse: Callable[[Any], T], start: int | None) -> Steps[T]:
    if start is not None:
        ask.content.seek(start)  # type: ignore[union-attr]
    try:
        answer = yield ask
    except NoAnswerError as silence:
        msg = f"the boundary does not answer: {silence}"
        raise UnreachableError(msg) from silence
    return steps.read(answer, parse)


def _chunks(texts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """As many as may be sent in one request."""
    chunk, size = list[bytes](), 0
    for text in texts:
        if chunk and (len(chunk) == MOST_AT_ONCE or size + len(text) > MOST_BYTES_AT_ONCE):
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += len(text) + 1
    if chunk:
        yield chunk


def _fetching(name: str, limit: int, wait: float) -> Ask:
    params = {"limit": str(limit), "wait": f"{wait:g}"}
    return Ask("GET", f"/consumers/{quote(name, safe='')}/facts", params=params, timeout=PATIENCE + wait)


def _confirming(name: str, offset: int) -> Ask:
    return _post(f"/consumers/{quote(name, safe='')}/confirm", _written({"offset": offset}))


def _consumers(told: Any) -> list[str]:
    return list(told["consumers"])


def _cursor(told: Any) -> int:
    return int(told["cursor_advanced_to"])


def _post(path: str, content: bytes) -> Ask:
    return Ask("POST", path, content, {"Content-Type": "application/json"})


def _written(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        msg = f"it cannot be written as JSON: {error}"
        raise InvalidFactError(msg) from None


def _measured(content: "bytes | IO[bytes]") -> tuple[str, int]:
    digest, size = sha256(), 0
    if isinstance(content, bytes):
        digest.update(content)
        size = len(content)
    else:
        start = content.tell()
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
        content.seek(start)
    return base64.b64encode(digest.digest()).decode(), size
