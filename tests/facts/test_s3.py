"""Artifacts in an S3-compatible storage, against a real server: up, down in ranges, swept, and a storage that fails."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import httpx
import pytest

from ergon_site import environment as parsing
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import artifacts
from facts.artifacts import depot
from facts.models import Artifact
from tests.facts.test_artifact_server import MIB, MOST_MEMORY, PATH, up_and_down
from tests.facts.upload_bytes import BUCKET, digest
from tests.processes import LIMIT, ROOT, Site, free_port, wait_for
from tests.proxy import proxy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]
KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_DEFAULT_REGION": "eu-central-1"}
STORED = "ergon-artifacts"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Where an S3 server listens."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(urlsplit(url).port)]
    clean = {"PATH": os.environ["PATH"]}
    with subprocess.Popen(command, cwd=ROOT, env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as moto:
        try:
            wait_for(f"{url}/moto-api/")
            yield url
        finally:
            moto.kill()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket, for this process and those that it starts."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    made = boto3.resource("s3", endpoint_url=server).create_bucket(
        Bucket=STORED, CreateBucketConfiguration={"LocationConstraint": KEYS["AWS_DEFAULT_REGION"]}
    )
    yield made
    made.objects.all().delete()
    made.delete()


def options(url: str) -> str:
    return json.dumps({"bucket_name": STORED, "endpoint_url": url})


@pytest.fixture
def _kept_there(server: str, bucket: Any, settings: Any, tmp_path: Path) -> None:
    """This process keeps artifacts in the bucket, too."""
    settings.STORAGES = {**settings.STORAGES, "artifacts": parsing.artifact_storage(tmp_path)(options(server))}


def names(bucket: Any) -> list[str]:
    return [one.key for one in bucket.objects.all()]


def headers() -> dict[str, str]:
    grant = Grant(scopes=["objects:put", "objects:get"], buckets=[BUCKET])
    return {"Authorization": f"Bearer {clients.create('mes', grant, by='tests').token.text}"}


def test_an_artifact_is_uploaded_read_in_ranges_and_known_again(
    server: str, bucket: Any, serve_with: Callable[..., Site]
) -> None:
    body = bytes(range(256)) * 40_000  # more than a part of an upload
    with httpx.Client(base_url=serve_with(ERGON_S3=options(server)).url, headers=headers(), timeout=LIMIT) as api:
        answer = api.put(PATH, content=body)
        assert (answer.status_code, answer.json()["digest"]) == (201, digest(body))
        assert names(bucket) == [Artifact.objects.get().stored_as]
        assert api.put(PATH, content=body).status_code == 200
        assert api.get(PATH).content == body
        for asked, part in {"0-4": body[:5], "9000000-9000009": body[9_000_000:9_000_010], "-3": body[-3:]}.items():
            answer = api.get(PATH, headers={"Range": f"bytes={asked}"})
            assert (answer.status_code, answer.content) == (206, part)
        assert api.get(PATH, headers={"Range": f"bytes={len(body)}-"}).status_code == 416
        assert api.head(PATH).status_code == 200
        empty = PATH.replace("large", "empty")
        assert api.put(empty, content=b"").status_code == 201
        assert api.get(empty).content == b""


def test_what_is_missing_there_is_gone_with_a_code(server: str, bucket: Any, serve_with: Callable[..., Site]) -> None:
    with httpx.Client(base_url=serve_with(ERGON_S3=options(server)).url, headers=headers(), timeout=LIMIT) as api:
        assert api.get(PATH).json()["code"] == "unknown_object"
        api.put(PATH, content=b"whole")
        bucket.objects.all().delete()
        for asked in ({}, {"Range": "bytes=1-2"}):
            answer = api.get(PATH, headers=asked)
            assert (answer.status_code, answer.json()["code"]) == (410, "artifact_unavailable")
        assert api.head(PATH).status_code == 410
        assert api.put(PATH, content=b"whole").status_code == 200
        assert api.get(PATH).content == b"whole"


@pytest.mark.usefixtures("_kept_there")
def test_what_no_fact_and_no_row_needs_is_swept(bucket: Any) -> None:
    artifacts.put(BUCKET, "orphan", BytesIO(b"a draft"), by="tests")
    bucket.put_object(Key=depot.new_name(), Body=b"of an upload that ended with its process")
    assert artifacts.sweep() == 0  # young, they may still be needed
    assert len(names(bucket)) == 2
    assert artifacts.sweep(age=0.0) == 2
    assert names(bucket) == []


@pytest.mark.usefixtures("_kept_there")
def test_bytes_that_were_changed_there_are_found(bucket: Any) -> None:
    artifacts.put(BUCKET, "order", BytesIO(b"an order"), by="tests")
    bucket.put_object(Key=Artifact.objects.get().stored_as, Body=b"something else")
    artifacts.sweep()
    assert Artifact.objects.get().damage == "corrupt"


def test_a_storage_that_goes_away_in_mid_upload_is_an_answer_with_a_code_and_leaves_no_row(
    server: str, bucket: Any, serve_with: Callable[..., Site]
) -> None:
    address = urlsplit(server)
    with proxy(address.hostname or "", address.port or 0) as between:
        through = options(f"http://127.0.0.1:{between.port}")
        site = serve_with(ERGON_S3=through)

        def pieces() -> Iterator[bytes]:
            for number in range(20):
                if number == 12:  # a part of the upload has been sent by now
                    between.close()
                yield b"x" * MIB

        with httpx.Client(base_url=site.url, headers=headers(), timeout=4 * LIMIT) as api:
            answer = api.put(PATH, content=pieces(), headers={"Content-Length": str(20 * MIB)})
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
            assert api.get(PATH).status_code == 404
        assert not Artifact.objects.exists()
        assert names(bucket) == []


def test_a_storage_that_is_away_is_an_answer_with_a_code(
    server: str, bucket: Any, serve_with: Callable[..., Site]
) -> None:
    known = headers()
    with httpx.Client(base_url=serve_with(ERGON_S3=options(server)).url, headers=known, timeout=LIMIT) as api:
        api.put(PATH, content=b"whole")
    away = serve_with(ERGON_S3=options(f"http://127.0.0.1:{free_port()}"))
    with httpx.Client(base_url=away.url, headers=known, timeout=4 * LIMIT) as api:
        answer = api.get(PATH)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert api.put(PATH.replace("large", "new"), content=b"x").status_code == 503
    assert Artifact.objects.get().damage == ""


def test_a_bucket_that_is_not_there_is_an_answer_with_a_code(
    server: str, bucket: Any, serve_with: Callable[..., Site]
) -> None:
    known = headers()
    with httpx.Client(base_url=serve_with(ERGON_S3=options(server)).url, headers=known, timeout=LIMIT) as api:
        api.put(PATH, content=b"whole")
    wrong = json.dumps({"bucket_name": "another", "endpoint_url": server})
    with httpx.Client(base_url=serve_with(ERGON_S3=wrong).url, headers=known, timeout=LIMIT) as api:
        for body in (b"small", b"x" * 6 * MIB):
            answer = api.put(PATH.replace("large", "new"), content=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        answer = api.get(PATH)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert api.head(PATH).status_code == 503
    assert Artifact.objects.get().damage == "", "nothing is known of its bytes"


@pytest.fixture
def site(server: str, bucket: Any, serve_with: Callable[..., Site], tmp_path: Path) -> Site:
    """A web server that has loaded what it loads in production: it is not forked from the tests', and without what moto
    brings along, which django-storages loads if it is there."""
    (tmp_path / "cryptography.py").write_text("raise ImportError\n")
    return serve_with(ERGON_S3=options(server), PYTHONPATH=str(tmp_path), LD_PRELOAD="")


def test_an_artifact_passes_through_without_filling_the_memory(site: Site) -> None:
    assert up_and_down(site, 64 * MIB, is_chunked=False) < MOST_MEMORY


@pytest.mark.soak
def test_two_gigabytes_pass_through_without_filling_the_memory(site: Site) -> None:
    assert up_and_down(site, 2048 * MIB, is_chunked=False) < MOST_MEMORY
