"""Artifacts in an S3-compatible storage, streamed both ways: neither memory nor this host's disk holds a whole one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files import File
from storages.backends.s3 import S3Storage
from storages.utils import clean_name

from facts.core.errors import StorageUnavailableError

# The least that S3 takes of a part that is not the last one; ten thousand of them are more than any artifact has.
PART = 5 * 1024 * 1024
CHUNK = 256 * 1024
# A storage that falls silent must not keep a thread of the web server for ever; to put together the parts of a large
# upload takes a while.
LIMITS = Config(connect_timeout=5, read_timeout=60, retries={"max_attempts": 3, "mode": "standard"})


class ArtifactStorage(S3Storage):
    """An S3 storage whose files are read as they come, from any place on, and whose failures have a code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.client_config: Config = self.client_config.merge(LIMITS)
        self._making, self._client = Lock(), None

    @property
    def client(self) -> Any:
        """One for all threads, which may share it: each takes as much memory as several parts of an upload."""
        with self._making:
            if self._client is None:
                self._client = self.connection.meta.client
            return self._client

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self.bucket_name, "Key": self._normalize_name(clean_name(name))}

    def _open(self, name: str, mode: str = "rb") -> "ObjectFile":
        size = self._head(name)["ContentLength"]
        return ObjectFile(name, size, partial(self.client.get_object, **self._place(name)))

    def _head(self, name: str) -> Any:
        try:
            with answering(name):
                return self.client.head_object(**self._place(name))
        except FileNotFoundError:
            with answering():  # nothing is missing from a bucket that is not there, and the first answer cannot tell
                self.client.head_bucket(Bucket=self.bucket_name)
            raise

    def _save(self, name: str, content: Any) -> str:
        """Upload in parts, one after the other, through one buffer: what is sent is all that is in memory."""
        client, place = self.client, self._place(name)
        told = self._get_write_parameters(place["Key"], content)
        buffer = bytearray(PART)
        with answering():
            size = fill(buffer, content)
            if size < PART:
                client.put_object(**place, Body=bytes(buffer[:size]), **told)
                return name
            whole = place | {"UploadId": client.create_multipart_upload(**place, **told)["UploadId"]}
            try:
                parts: list[dict[str, Any]] = []
                while size:
                    body = buffer if size == PART else bytes(buffer[:size])
                    sent = client.upload_part(**whole, PartNumber=len(parts) + 1, Body=body)
                    parts.append({"PartNumber": len(parts) + 1, "ETag": sent["ETag"]})
                    size = fill(buffer, content)
                client.complete_multipart_upload(**whole, MultipartUpload={"Parts": parts})
            except BaseException:
                with suppress(BotoCoreError, ClientError):
                    client.abort_multipart_upload(**whole)
                raise
        return name

    def delete(self, name: str) -> None:
        with answering():
            self.client.delete_object(**self._place(name))

    def exists(self, name: str) -> bool:
        try:
            self._head(name)
        except FileNotFoundError:
            return False
        return True

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        with answering():
            found: tuple[list[str], list[str]] = super().listdir(path)
            return found

    def get_modified_time(self, name: str) -> Any:
        with answering(name):
            return super().get_modified_time(name)


class ObjectFile(File[bytes]):
    """An object that is read from a place on by one request, until it is told to read from another."""

    def __init__(self, name: str, size: int, get: Callable[..., Any]) -> None:
        super().__init__(None, name)
        self._size, self._get = size, get
        self._at = 0
        self._body: Any = None

    @property
    def size(self) -> int:
        return self._size

    @property
    def closed(self) -> bool:
        return self._body is None

    def seek(self, offset: int, _whence: int = 0, /) -> int:
        self.close()
        self._at = offset
        return offset

    def read(self, size: int = -1, /) -> bytes:
        if self._at >= self._size:
            return b""
        with answering(self.name or ""):
            if self._body is None:
                self._body = self._get(Range=f"bytes={self._at}-")["Body"]
            chunk: bytes = self._body.read(None if size < 0 else size)
        self._at += len(chunk)
        return chunk

    def close(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()


def fill(buffer: bytearray, content: Any) -> int:
    """Read as much as fits, less only at the end; how much that was."""
    size = 0
    while size < len(buffer) and (chunk := content.read(min(CHUNK, len(buffer) - size))):
        buffer[size : size + len(chunk)] = chunk
        size += len(chunk)
    return size


@contextmanager
def answering(name: str | None = None) -> Iterator[None]:
    """An object that is read and missing is a missing file, as of any storage; anything else may pass."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        if name is not None and isinstance(error, ClientError) and is_missing(error.response):
            raise FileNotFoundError(name) from None
        msg = "the storage of artifacts does not answer as it should"
        raise StorageUnavailableError(msg) from error


def is_missing(answer: Any) -> bool:
    """Whether the object is missing, and not its bucket."""
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return bool(status == HTTPStatus.NOT_FOUND and answer.get("Error", {}).get("Code") != "NoSuchBucket")
