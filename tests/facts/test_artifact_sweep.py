"""The sweep: what nobody refers to goes when it is old, and nothing else does, whatever happens meanwhile."""

import io
import os
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from engines.worker import maintenance
from ergon_site.access.models import AuditEntry
from facts import artifacts, conf, ledger
from facts.core.errors import UnknownArtifactError
from facts.ledger import Appended
from facts.models import Artifact, ArtifactReference
from tests.facts.drafts import draft, make_boundary
from tests.facts.upload_bytes import BUCKET, Stream, at_once, files, folder, reference
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_empty_storage")]
DAY = 86_400.0


def put(key: str = "k", *, age: float = 0.0, body: bytes = b"apples") -> Artifact:
    artifact = artifacts.put(BUCKET, key, io.BytesIO(body), by="tests").artifact
    Artifact.objects.filter(pk=artifact.pk).update(put_at=Now() - timedelta(seconds=age))
    return artifact


def leave_stray(name: str = "ab/abcdef", *, age: float = 0.0) -> None:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half of an upload")
    os.utime(path, (time.time() - age,) * 2)


def test_old_orphans_are_listed_and_swept_and_young_ones_are_not() -> None:
    old, _young = put("old", age=DAY + 60), put("young", age=DAY - 60)
    assert [artifact.pk for artifact in artifacts.orphans()] == [old.pk]
    assert artifacts.sweep() == 1
    assert [artifact.key for artifact in Artifact.objects.all()] == ["young"]
    assert len(files()) == 1
    assert artifacts.sweep() == 0


def test_the_age_of_an_orphan_is_a_setting(settings: Any) -> None:
    settings.ERGON_ORPHAN_AGE = 120.0
    conf.settings.cache_clear()
    put(age=180)
    assert artifacts.sweep() == 1
    conf.settings.cache_clear()


def test_an_orphan_that_is_uploaded_again_starts_anew() -> None:
    put(age=DAY + 60)
    artifacts.put(BUCKET, "k", io.BytesIO(b"apples"), by="tests")
    assert artifacts.sweep() == 0


def test_what_a_fact_refers_to_is_never_swept() -> None:
    make_boundary()
    artifact = put(age=10 * DAY)
    ledger.append(draft(1, object_json=reference(artifact)))
    assert not artifacts.orphans(age=0).exists()
    assert artifacts.sweep(age=0) == 0
    assert b"".join(artifacts.open_slice(artifacts.find(BUCKET, "k"))) == b"apples"


def test_the_key_of_a_swept_artifact_is_free_again() -> None:
    put(age=DAY + 60)
    artifacts.sweep()
    assert artifacts.put(BUCKET, "k", io.BytesIO(b"pears"), by="tests").is_new


def test_every_artifact_that_is_swept_is_in_the_audit_log() -> None:
    artifact = put("x" * 1024, age=DAY + 60)
    artifacts.sweep(by="command:ada", reason="tidying")
    entry = AuditEntry.objects.get(action="artifact.sweep")
    assert (entry.actor, entry.reason, len(entry.target)) == ("command:ada", "tidying", 300)
    assert entry.before is not None
    assert (entry.before["key"], entry.before["digest"]) == (artifact.key, artifact.digest)


def test_bytes_without_a_row_are_swept_by_their_age_and_audited() -> None:
    leave_stray(age=DAY + 60)
    leave_stray("cd/cdef", age=DAY - 60)
    assert artifacts.sweep() == 1
    assert [path.name for path in files()] == ["cdef"]
    entry = AuditEntry.objects.get(action="artifact.sweep")
    assert entry.before == {"count": 1, "names": ["ab/abcdef"]}


def test_where_nothing_has_been_stored_there_is_nothing_to_sweep() -> None:
    assert artifacts.sweep(age=0) == 0


def test_many_are_swept_and_many_are_kept() -> None:
    kept = [put(f"kept-{number}") for number in range(30)]
    for number in range(1200):
        leave_stray(f"{number % 7:02x}/stray-{number}", age=DAY + 60)
    assert artifacts.sweep() == 1200
    assert len(files()) == len(kept)


def test_a_sweep_that_ended_between_row_and_bytes_is_finished_by_the_next() -> None:
    artifact = put(age=DAY + 60)
    os.utime(folder() / artifact.stored_as, (time.time() - DAY - 60,) * 2)
    artifact.delete()
    assert artifacts.sweep() == 1
    assert files() == []


def test_the_bytes_of_an_upload_in_progress_are_not_taken_for_strays() -> None:
    swept: list[int] = []
    body = b"x" * 100
    stream = Stream(body, piece=50, before=lambda _at: swept.append(artifacts.sweep()))
    assert artifacts.put(BUCKET, "k", stream, by="tests").is_new
    assert swept == [0, 0, 0]
    assert b"".join(artifacts.open_slice(artifacts.find(BUCKET, "k"))) == body


def test_an_upload_whose_bytes_were_swept_under_it_fails_and_leaves_no_row() -> None:
    def sweep(at: int) -> None:
        if at:
            artifacts.sweep(age=-60)

    stream = Stream(b"x" * 100, piece=50, before=sweep)
    with pytest.raises(FileNotFoundError):
        artifacts.put(BUCKET, "k", stream, by="tests")
    assert (Artifact.objects.count(), files()) == (0, [])


def test_a_sweep_never_takes_bytes_from_a_row_that_is_being_written() -> None:
    for number in range(10):
        results = at_once(partial(put, f"k{number}"), *[partial(artifacts.sweep, age=-60)] * 3)
        kept = Artifact.objects.filter(key=f"k{number}").first()
        if kept is not None:
            assert b"".join(artifacts.open_slice(kept)) == b"apples"
        assert {type(result) for result in results} <= {Artifact, int, FileNotFoundError, OSError}
    assert {f"{path.parent.name}/{path.name}" for path in files()} == set(
        Artifact.objects.values_list("stored_as", flat=True)
    )


def test_of_a_sweep_and_an_append_at_the_same_moment_both_know_what_the_other_did() -> None:
    make_boundary()
    for number in range(12):
        artifact = put(f"k{number}", age=DAY + 60)
        told = draft(number, object_json=reference(artifact))
        appended, _, _ = at_once(partial(ledger.append, told), artifacts.sweep, artifacts.sweep)
        is_there = Artifact.objects.filter(pk=artifact.pk).exists()
        assert isinstance(appended, Appended if is_there else UnknownArtifactError)
        assert (folder() / artifact.stored_as).exists() is is_there
        assert ArtifactReference.objects.filter(artifact_id=artifact.pk).exists() is is_there


def test_an_artifact_that_a_fact_is_just_being_written_about_is_passed_by() -> None:
    make_boundary()
    artifact = put(age=DAY + 60)
    swept: list[int] = []

    def run() -> None:
        swept.append(artifacts.sweep())
        connection.close()

    sweeper = threading.Thread(target=run)
    with transaction.atomic():
        ledger.append(draft(1, object_json=reference(artifact)))
        sweeper.start()
        if connection.vendor == "postgresql":
            # It does not even wait.
            eventually(lambda: bool(swept), "the sweep is over")
    sweeper.join()
    assert swept == [0]
    assert (folder() / artifact.stored_as).exists()


def test_maintenance_sweeps() -> None:
    put(age=DAY + 60)
    leave_stray(age=DAY + 60)
    chore = next(chore for chore in maintenance.all_chores(30) if chore.name == "artifacts_swept")
    assert chore.run() == 2
    assert files() == []
