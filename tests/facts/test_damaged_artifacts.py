"""Artifacts whose bytes are damaged in the storage: found by reading and by the sweep, and never given out as whole."""

import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.dashboard import facts
from facts import artifacts, conf, ledger
from facts.artifacts import Announced
from facts.core.errors import ArtifactUnavailableError, ObjectConflictError, UnknownArtifactError
from facts.core.ranges import Span
from facts.models import Artifact
from facts.reads import health
from tests.facts.drafts import draft, make_boundary
from tests.facts.upload_bytes import BUCKET, digest, files, reference
from tests.processes import LIMIT, Site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_empty_storage")]
MIB = 1024 * 1024
SMALL, LARGE = b"twelve crates of apples", bytes(range(256)) * (4 * MIB // 256)
PATH = f"objects/{BUCKET}/order.pdf"


@pytest.fixture
def api(site: Site) -> Iterator[httpx.Client]:
    grant = Grant(scopes=["objects:put", "objects:get"], buckets=[BUCKET])
    headers = {"Authorization": f"Bearer {clients.create('mes', grant, by='tests').token.text}"}
    with httpx.Client(base_url=f"{site.url}/api/v1/", headers=headers, timeout=LIMIT) as calls:
        yield calls


def put(body: bytes, key: str = "order.pdf") -> Artifact:
    return artifacts.put(BUCKET, key, io.BytesIO(body), by="tests", announced=Announced(len(body))).artifact


def spoil(file: Path, place: int = -1) -> None:
    """Change one byte, as a bad disk does."""
    body = bytearray(file.read_bytes())
    body[place] ^= 1
    file.write_bytes(body)


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def check_unavailable(answer: httpx.Response) -> None:
    assert answer.status_code == 410, answer.text
    assert answer.json()["code"] == "artifact_unavailable"


def download(api: httpx.Client, received: list[int]) -> None:
    """The sizes of the chunks, as far as they come."""
    with api.stream("GET", PATH) as stream:
        assert stream.status_code == 200
        received += (len(chunk) for chunk in stream.iter_raw())


@pytest.mark.parametrize("place", [0, -1])
def test_a_large_artifact_that_is_corrupt_is_never_served_whole_and_then_not_at_all(
    api: httpx.Client, place: int
) -> None:
    assert api.put(PATH, content=LARGE).status_code == 201
    spoil(files()[0], place)
    received: list[int] = []
    with pytest.raises(httpx.RemoteProtocolError):
        download(api, received)
    assert 0 < sum(received) < len(LARGE)
    check_unavailable(api.get(PATH))
    check_unavailable(api.get(PATH, headers={"Range": "bytes=0-9"}))
    assert api.head(PATH).status_code == 410


@pytest.mark.parametrize("damage", [spoil, cut_off])
def test_a_small_artifact_that_is_corrupt_is_refused_at_once(api: httpx.Client, damage: Any) -> None:
    assert api.put(PATH, content=SMALL).status_code == 201
    assert api.get(PATH).content == SMALL
    damage(files()[0])
    check_unavailable(api.get(PATH))
    assert Artifact.objects.get().damage == "corrupt"


def test_a_large_artifact_that_lacks_its_end_is_refused_at_once(api: httpx.Client) -> None:
    api.put(PATH, content=LARGE)
    cut_off(files()[0])
    check_unavailable(api.get(PATH, headers={"Range": "bytes=0-9"}))
    check_unavailable(api.get(PATH))


def test_an_artifact_without_its_bytes_is_unavailable_until_they_are_back(api: httpx.Client, tmp_path: Path) -> None:
    api.put(PATH, content=SMALL)
    file = files()[0]
    shutil.move(file, tmp_path / "aside")
    check_unavailable(api.get(PATH))
    assert api.head(PATH).status_code == 410
    assert Artifact.objects.get().damage == "missing"
    shutil.move(tmp_path / "aside", file)
    assert api.get(PATH).content == SMALL
    artifacts.sweep()
    assert Artifact.objects.get().damage == ""


def test_the_same_bytes_again_mend_a_damaged_artifact_and_others_do_not(api: httpx.Client) -> None:
    api.put(PATH, content=LARGE)
    spoil(files()[0])
    artifacts.sweep()
    check_unavailable(api.get(PATH))
    other = api.put(PATH, content=SMALL)
    assert (other.status_code, other.json()["code"]) == (409, "object_conflict")
    again = api.put(PATH, content=LARGE)
    assert (again.status_code, again.json()["digest"]) == (200, digest(LARGE))
    assert api.get(PATH).content == LARGE
    assert len(files()) == 1


def remove(file: Path) -> None:
    file.unlink()


def remove_folder(file: Path) -> None:
    shutil.rmtree(file.parent)


def put_a_folder_there(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("loss", [remove, remove_folder, put_a_folder_there])
def test_an_artifact_whose_file_is_gone_is_unavailable_and_not_a_failure(api: httpx.Client, loss: Any) -> None:
    assert api.put(PATH, content=SMALL).status_code == 201
    loss(files()[0])
    check_unavailable(api.get(PATH))
    check_unavailable(api.get(PATH, headers={"Range": "bytes=0-9"}))
    assert api.head(PATH).status_code == (200 if loss is put_a_folder_there else 410)
    assert Artifact.objects.get().damage == "missing"


def test_the_sweep_finds_what_is_damaged_and_says_so() -> None:
    make_boundary()
    spoiled, lost, whole = put(SMALL, "spoiled"), put(SMALL, "lost"), put(LARGE, "whole")
    by_name = {file.name: file for file in files()}
    spoil(by_name[spoiled.stored_as.rpartition("/")[2]])
    by_name[lost.stored_as.rpartition("/")[2]].unlink()
    assert artifacts.sweep() == 0
    found = dict(Artifact.objects.values_list("key", "damage"))
    assert found == {"spoiled": "corrupt", "lost": "missing", "whole": ""}
    assert not Artifact.objects.filter(verified_at__isnull=True).exists()
    with pytest.raises(ArtifactUnavailableError):
        artifacts.find(BUCKET, "spoiled")
    concerns = [concern.title for concern in facts.items(health.of_boundaries())]
    assert [title for title in concerns if "bytes of the artifact" in title] == [
        f"The bytes of the artifact {BUCKET}/spoiled are corrupt",
        f"The bytes of the artifact {BUCKET}/lost are missing",
    ]
    problems = [one for one in facts.findings() if "missing or corrupt" in one.text]
    assert len(problems) == 1
    assert b"".join(artifacts.open_slice(artifacts.find(BUCKET, whole.key))) == LARGE


@pytest.fixture
def verify_age(settings: Any) -> Iterator[Callable[[float], None]]:
    def change(seconds: float) -> None:
        settings.ERGON_VERIFY_AGE = seconds
        conf.settings.cache_clear()

    yield change
    conf.settings.cache_clear()


def test_what_was_verified_is_read_again_when_its_time_comes(verify_age: Callable[[float], None]) -> None:
    artifact = put(SMALL)
    artifacts.sweep()
    spoil(files()[0])
    artifacts.sweep()
    assert Artifact.objects.get().damage == ""
    Artifact.objects.filter(pk=artifact.pk).update(verified_at="2026-01-01T00:00:00Z")
    verify_age(0)
    artifacts.sweep()
    assert Artifact.objects.get().damage == "", "0 means never"
    verify_age(3600)
    artifacts.sweep()
    assert Artifact.objects.get().damage == "corrupt"


def test_a_fact_cannot_refer_to_a_damaged_artifact() -> None:
    make_boundary()
    artifact = put(SMALL)
    spoil(files()[0])
    artifacts.sweep()
    with pytest.raises(UnknownArtifactError, match="corrupt: upload it again"):
        ledger.append(draft(1, object_json=reference(artifact)))
    with pytest.raises(ObjectConflictError):
        put(b"else")
    assert put(SMALL).pk == artifact.pk
    assert ledger.append(draft(1, object_json=reference(artifact))).offset == 0


def test_a_part_is_given_out_as_it_is_unless_it_is_everything() -> None:
    artifact = put(LARGE)
    spoil(files()[0])
    assert b"".join(artifacts.open_slice(artifact, Span(0, 10))) == LARGE[:10]
    with pytest.raises(ArtifactUnavailableError):
        b"".join(artifacts.open_slice(artifact, Span(0, len(LARGE))))
