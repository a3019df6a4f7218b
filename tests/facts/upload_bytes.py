"""What tests of artifacts share: streams that misbehave, the folder that they lie in, references to them."""

import base64
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from facts.models import Artifact

BUCKET = "batch-files"


def folder() -> Path:
    return Path(settings.STORAGES["artifacts"]["OPTIONS"]["location"])


def files() -> list[Path]:
    """Everything that lies in the storage."""
    return sorted(path for path in folder().rglob("*") if path.is_file())


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def digest_header(body: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def reference(artifact: Artifact, **changes: Any) -> dict[str, Any]:
    """What a fact says of an artifact."""
    told = {"bucket": artifact.bucket, "key": artifact.key, "digest": artifact.digest, "size": artifact.size}
    return {**told, "file_name": "order.pdf", **changes}


class Stream:
    """Bytes in small pieces; before each, something happens."""

    def __init__(self, body: bytes, *, piece: int = 7, before: Callable[[int], None] = lambda _at: None) -> None:
        self._body, self._piece, self._before = body, piece, before
        self.at = 0

    def read(self, size: int, /) -> bytes:
        self._before(self.at)
        chunk = self._body[self.at : self.at + min(size, self._piece)]
        self.at += len(chunk)
        return chunk


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What each returned or raised, all having begun together in threads of their own."""
    barrier = threading.Barrier(len(acts))
    results: list[Any] = [None] * len(acts)

    def run(place: int, act: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            results[place] = act()
        except Exception as error:  # noqa: BLE001 (looked at by the test)
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[place, act]) for place, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
