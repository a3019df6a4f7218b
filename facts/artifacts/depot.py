"""The bytes of artifacts: names, durability and removal in the storage `artifacts`."""

import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.core.files.storage import FileSystemStorage, Storage, storages

from ergon_site.access.conf import data_folder
from facts.core.artifacts import PREFIX
from facts.core.errors import StorageUnavailableError

ALIAS = "artifacts"
CHUNK = 1024 * 1024


def storage() -> Storage:
    """The storage of that name in STORAGES; where there is none, a folder beside the other data."""
    return storages[ALIAS] if ALIAS in storages.backends else FileSystemStorage(data_folder() / ALIAS)


def new_name() -> str:
    """A name that tells nothing, in one of 256 folders."""
    name = uuid4().hex
    return f"{name[:2]}/{name}"


def save(name: str, content: Any) -> None:
    """Store and make durable; if that fails, nothing is left."""
    try:
        # Nobody else has such a name, so the storage never has to choose another.
        storage().save(name, content)
        _settle(name)
    except BaseException:
        # A storage that has just failed may fail again: then the sweep removes what lies there.
        with suppress(StorageUnavailableError):
            discard(name)
        raise


def discard(name: str) -> None:
    storage().delete(name)


def is_there(name: str) -> bool:
    return storage().exists(name)


def digest_of(name: str, size: int) -> str:
    """The digest of the first so many bytes of what is stored under a name."""
    found = sha256()
    with storage().open(name) as file:
        while size and (chunk := file.read(min(CHUNK, size))):
            found.update(chunk)
            size -= len(chunk)
    return PREFIX + found.hexdigest()


def names() -> Iterator[str]:
    """The names of all stored files."""
    try:
        folders, _ = storage().listdir("")
    except FileNotFoundError:
        return  # nothing has been stored yet
    for folder in folders:
        _, files = storage().listdir(folder)
        yield from (f"{folder}/{file}" for file in files)


def _settle(name: str) -> None:
    """Of a local file: itself, the folders that lead to it, and the entry of the uppermost reach the disk."""
    try:
        path = Path(storage().path(name))
    except NotImplementedError:
        return
    root = Path(storage().path(""))
    for place in (path, *path.parents):
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if place == root.parent:
            return
