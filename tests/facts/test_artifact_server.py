"""Artifacts that are larger than the server's memory, and servers and clients that go away in the middle."""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import artifacts
from facts.models import Artifact
from tests.facts.upload_bytes import BUCKET, digest, files
from tests.processes import LIMIT, Site, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once, pytest.mark.usefixtures("_empty_storage")]
MIB = 1024 * 1024
MOST_MEMORY = 32 * MIB
PATH = f"/api/v1/objects/{BUCKET}/large"


def token() -> str:
    grant = Grant(scopes=["objects:put", "objects:get"], buckets=[BUCKET])
    return clients.create("mes", grant, by="tests").token.text


class Watch:
    """The most memory that any of some processes has had beyond what it had before."""

    def __init__(self, watched: list[psutil.Process]) -> None:
        self._before = {one: one.memory_info().rss for one in watched}
        self._over = threading.Event()
        self.peak = 0

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.peak = max(self.peak, *(one.memory_info().rss - before for one, before in self._before.items()))

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def pieces(size: int) -> Iterator[bytes]:
    """That many bytes, no two pieces alike."""
    for number in range(size // MIB):
        yield number.to_bytes(8, "big") * (MIB // 8)


def up_and_down(site: Site, size: int, *, is_chunked: bool) -> int:
    """Send that much there and back; how much memory the server needs for it at most."""
    headers = {"Authorization": f"Bearer {token()}"}
    with httpx.Client(base_url=site.url, headers=headers, timeout=600) as api:
        # It has loaded everything then.
        assert api.put(f"{PATH}-before", content=b"small").status_code == 201
        watch = Watch(site.processes())
        with watch.watching():
            _send_and_fetch(api, size, {} if is_chunked else {"Content-Length": str(size)})
    print(f"{size // MIB} MiB up, down and up again: the server took {watch.peak / MIB:.0f} MiB at most")
    return watch.peak


def _send_and_fetch(api: httpx.Client, size: int, length: dict[str, str]) -> None:
    expected = hashlib.sha256()
    for piece in pieces(size):
        expected.update(piece)
    answer = api.put(PATH, content=pieces(size), headers=length)
    assert (answer.status_code, answer.json()["digest"]) == (201, f"sha256:{expected.hexdigest()}")
    received = hashlib.sha256()
    with api.stream("GET", PATH) as stream:
        for chunk in stream.iter_raw():
            received.update(chunk)
    assert received.digest() == expected.digest()
    assert api.put(PATH, content=pieces(size)).status_code == 200


@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_artifact_passes_through_without_filling_the_memory(
    serve_with: Callable[..., Site], *, is_chunked: bool
) -> None:
    assert up_and_down(serve_with(), 64 * MIB, is_chunked=is_chunked) < MOST_MEMORY


@pytest.mark.soak
@pytest.mark.parametrize("is_chunked", [False, True])
def test_two_gigabytes_pass_through_without_filling_the_memory(
    serve_with: Callable[..., Site], *, is_chunked: bool
) -> None:
    assert up_and_down(serve_with(), 2048 * MIB, is_chunked=is_chunked) < MOST_MEMORY


def begin_upload(site: Site, length: str) -> socket.socket:
    """A client that has sent a mebibyte and more of an upload, with more to come."""
    address = urlsplit(site.url)
    client = socket.create_connection((address.hostname or "", address.port or 0))
    head = f"PUT {PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {token()}\r\n{length}\r\n\r\n"
    client.sendall(head.encode())
    body = b"x" * (2 * MIB + 5)
    client.sendall(b"%x\r\n%s\r\n" % (len(body), body) if "chunked" in length else body)
    eventually(lambda: bool(files()) and files()[0].stat().st_size >= MIB, "some of it lies in the storage")
    return client


def test_a_server_that_is_killed_in_the_middle_leaves_no_row_and_what_it_leaves_is_swept(
    serve_with: Callable[..., Site],
) -> None:
    site = serve_with()
    server = site.processes()
    client = begin_upload(site, f"Content-Length: {100 * MIB}")
    for process in server:
        process.kill()
    psutil.wait_procs(server[1:], timeout=30)
    client.close()
    assert not Artifact.objects.exists()
    assert len(files()) == 1
    # Young, it might still be written.
    assert artifacts.sweep() == 0
    os.utime(files()[0], (time.time() - 2 * 86_400,) * 2)
    assert artifacts.sweep() == 1
    assert files() == []
    second = serve_with()
    headers = {"Authorization": f"Bearer {clients.rotate(_client_id(), by='tests').token.text}"}
    assert httpx.put(f"{second.url}{PATH}", content=b"whole", headers=headers, timeout=LIMIT).status_code == 201


def _client_id() -> int:
    from ergon_site.access.models import ApiClient

    return ApiClient.objects.get(name="mes").pk


def test_a_client_that_goes_away_in_the_middle_leaves_nothing(site: Site) -> None:
    begin_upload(site, f"Content-Length: {100 * MIB}").close()
    eventually(lambda: not files(), "the half is removed")
    assert not Artifact.objects.exists()


def test_a_client_that_goes_away_between_chunks_can_upload_the_whole_afterwards(site: Site) -> None:
    begin_upload(site, "Transfer-Encoding: chunked").close()
    # The server cannot see that it was not the end.
    eventually(Artifact.objects.exists, "the half is recorded")
    assert not Artifact.objects.get().is_whole
    whole = b"x" * (3 * MIB)
    headers = {"Authorization": f"Bearer {clients.rotate(_client_id(), by='tests').token.text}"}
    answer = httpx.put(f"{site.url}{PATH}", content=iter([whole]), headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["digest"]) == (201, digest(whole))
    assert len(files()) == 1
    assert httpx.get(f"{site.url}{PATH}", headers=headers, timeout=LIMIT).content == whole


def test_a_client_that_goes_away_during_a_download_leaves_no_file_open(site: Site) -> None:
    headers = {"Authorization": f"Bearer {token()}"}
    httpx.put(f"{site.url}{PATH}", content=b"x" * (64 * MIB), headers=headers, timeout=60)
    stored = files()[0]
    with httpx.stream("GET", f"{site.url}{PATH}", headers=headers, timeout=LIMIT) as stream:
        chunks = stream.iter_raw()
        next(chunks)
        assert _is_open(site, str(stored))
    eventually(lambda: not _is_open(site, str(stored)), "the file is closed")


def _is_open(site: Site, path: str) -> bool:
    return any(path == file.path for process in site.processes() for file in process.open_files())
