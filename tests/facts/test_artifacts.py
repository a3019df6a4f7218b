"""Artifacts: the first bytes under a key stay, whoever comes at the same time, and nothing is left of the others."""

import errno
import io
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from facts import artifacts, conf, ledger
from facts.artifacts import Announced, Put
from facts.artifacts.storing import Incoming
from facts.core.errors import (
    DigestMismatchError,
    FactError,
    InvalidFactError,
    ObjectConflictError,
    PayloadTooLargeError,
    UnknownArtifactError,
    UnknownObjectError,
)
from facts.core.ranges import Span
from facts.models import Artifact, ArtifactReference
from tests.factories import ArtifactFactory
from tests.facts.drafts import draft, make_boundary
from tests.facts.upload_bytes import BUCKET, Stream, at_once, digest, files, folder, reference

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_empty_storage")]
BODY = b"twelve crates of apples"


@pytest.fixture
def small(settings: Any) -> Iterator[None]:
    """Artifacts may have 20 bytes."""
    settings.ERGON_FACT_LIMITS = {"artifact": 20}
    conf.settings.cache_clear()
    yield
    conf.settings.cache_clear()


def put(body: bytes = BODY, key: str = "a/order.pdf", **told: Any) -> Put:
    return artifacts.put(BUCKET, key, io.BytesIO(body), by="tests", **told)


def read(artifact: Artifact, span: Span | None = None) -> bytes:
    return b"".join(artifacts.open_slice(artifact, span))


def test_what_is_put_can_be_read_again() -> None:
    stored = put(media_type="application/pdf")
    assert stored.is_new
    found = artifacts.find(BUCKET, "a/order.pdf")
    assert (found.digest, found.size, found.media_type) == (digest(BODY), len(BODY), "application/pdf")
    assert read(found) == BODY
    assert read(found, Span(7, 13)) == b"crates"


def test_nothing_is_an_artifact_too() -> None:
    assert read(put(b"").artifact) == b""
    assert not put(b"").is_new


def test_the_name_in_the_storage_tells_nothing_of_bucket_and_key() -> None:
    name = put().artifact.stored_as
    assert BUCKET not in name
    assert "order" not in name
    assert [path.relative_to(folder()).as_posix() for path in files()] == [name]


def test_nobody_else_on_the_machine_may_read_it() -> None:
    put()
    assert [path.stat().st_mode & 0o077 for path in (files()[0], files()[0].parent)] == [0, 0]


def test_the_same_bytes_again_get_the_same_answer_and_store_nothing() -> None:
    first = put(media_type="application/pdf")
    again = put(media_type="text/plain")
    assert not again.is_new
    assert again.artifact.pk == first.artifact.pk
    assert again.artifact.media_type == "application/pdf"
    assert len(files()) == 1


@pytest.mark.parametrize("other", [b"other", BODY + b"!", BODY[:-1], b""])
def test_other_bytes_are_refused_and_change_nothing(other: bytes) -> None:
    artifact = put().artifact
    with pytest.raises(ObjectConflictError, match="already exists with other bytes"):
        put(other)
    assert read(artifacts.find(BUCKET, "a/order.pdf")) == BODY
    assert [path.name for path in files()] == [artifact.stored_as.rpartition("/")[2]]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("announced", "error"),
    [
        (Announced(digest=digest(b"else")), DigestMismatchError),
        (Announced(size=len(BODY) + 1), InvalidFactError),
        (Announced(size=len(BODY) - 1), InvalidFactError),
    ],
)
def test_bytes_that_are_not_as_announced_leave_nothing(
    announced: Announced, error: type[Exception], *, known: bool
) -> None:
    if known:
        put()
    with pytest.raises(error):
        put(announced=announced)
    assert (Artifact.objects.count(), len(files())) == (known, known)


def test_bytes_that_are_as_announced_are_kept() -> None:
    assert put(announced=Announced(size=len(BODY), digest=digest(BODY))).is_new


@pytest.mark.usefixtures("small")
def test_what_is_too_large_is_refused_as_soon_as_it_is_and_leaves_nothing() -> None:
    stream = Stream(b"x" * 1000, piece=7)
    with pytest.raises(PayloadTooLargeError):
        artifacts.put(BUCKET, "k", stream, by="tests")
    assert stream.at == 21
    assert (Artifact.objects.count(), files()) == (0, [])
    assert put(b"x" * 20).is_new


@pytest.mark.usefixtures("small")
def test_what_is_announced_as_too_large_is_not_even_read() -> None:
    stream = Stream(b"x" * 1000)
    with pytest.raises(PayloadTooLargeError):
        artifacts.put(BUCKET, "k", stream, by="tests", announced=Announced(size=21))
    assert stream.at == 0


def test_a_stream_that_breaks_leaves_nothing() -> None:
    def fail(at: int) -> None:
        if at > 10:
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        artifacts.put(BUCKET, "k", Stream(BODY, before=fail), by="tests")
    assert (Artifact.objects.count(), files()) == (0, [])


def test_a_storage_may_read_by_size_and_gets_short_only_at_the_end() -> None:
    incoming = Incoming(Stream(BODY, piece=3), limit=1000)
    assert [incoming.read(10), incoming.read(0), incoming.read(), incoming.read()] == [BODY[:10], b"", BODY[10:], b""]
    assert (incoming.digest, incoming.size, incoming.seekable()) == (digest(BODY), len(BODY), False)


def test_a_full_disk_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        put()
    assert (Artifact.objects.count(), files()) == (0, [])


def test_the_file_and_its_folders_are_on_the_disk_before_the_row_is(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    flush = os.fsync

    def watch(handle: int) -> None:
        assert not Artifact.objects.exists()
        synced.append(os.fstat(handle).st_ino)
        flush(handle)

    monkeypatch.setattr(os, "fsync", watch)
    path = folder() / put().artifact.stored_as
    assert synced == [place.stat().st_ino for place in (path, path.parent, folder(), folder().parent)]


def test_uploads_of_the_same_bytes_at_once_are_one() -> None:
    results = at_once(*[put] * 6)
    assert sorted(result.is_new for result in results) == [False] * 5 + [True]
    assert (Artifact.objects.count(), len(files())) == (1, 1)


def test_of_uploads_of_different_bytes_at_once_one_wins_and_the_others_are_refused() -> None:
    bodies = [bytes([65 + number]) * 50_000 for number in range(6)]
    results = at_once(*[lambda body=body: put(body) for body in bodies])
    won = [body for body, result in zip(bodies, results, strict=True) if isinstance(result, Put)]
    assert len(won) == 1
    assert [type(result) for result in results].count(ObjectConflictError) == 5
    assert read(artifacts.find(BUCKET, "a/order.pdf")) == won[0]
    assert len(files()) == 1


def test_what_was_broken_off_unseen_gives_way_to_the_whole() -> None:
    unseen = Announced(is_whole=False)
    put(BODY[:9], announced=unseen)
    with pytest.raises(ObjectConflictError):
        put(b"another thing", announced=unseen)
    with pytest.raises(ObjectConflictError):
        artifacts.put(BUCKET, "a/order.pdf", io.BytesIO(BODY), by="somebody else")
    assert put(BODY, announced=unseen).is_new
    assert not put(BODY).is_new
    assert read(artifacts.find(BUCKET, "a/order.pdf")) == BODY
    assert len(files()) == 1


def test_what_was_confirmed_as_a_whole_gives_way_to_nothing_longer() -> None:
    put(BODY[:9], announced=Announced(is_whole=False))
    confirmed = put(BODY[:9], announced=Announced(size=9, digest=digest(BODY[:9])))
    assert (confirmed.is_new, confirmed.artifact.is_whole) == (False, True)
    with pytest.raises(ObjectConflictError):
        put(BODY)


def test_what_a_fact_refers_to_never_gives_way() -> None:
    make_boundary()
    artifact = put(BODY[:9], announced=Announced(is_whole=False)).artifact
    ledger.append(draft(1, object_json=reference(artifact)))
    with pytest.raises(ObjectConflictError):
        put(BODY)


def test_in_the_callers_transaction_it_is_kept_or_forgotten_with_it() -> None:
    def fail() -> None:
        with transaction.atomic():
            assert put().is_new
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(UnknownObjectError):
        artifacts.find(BUCKET, "a/order.pdf")
    assert artifacts.sweep(age=0) == 1
    assert put().is_new


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "a/../../b", "a\\..\\b", "a\x00b", "."])
def test_a_key_that_would_lead_elsewhere_is_refused(key: str) -> None:
    with pytest.raises(InvalidFactError):
        put(key=key)
    with pytest.raises(InvalidFactError):
        artifacts.find(BUCKET, key)
    assert files() == []


def test_the_longest_key_is_kept_in_every_script() -> None:
    for key in ("x" * 1024, "ü" * 1024, "雪" * 853):
        assert put(key=key).is_new
        assert not put(key=key).is_new


@pytest.mark.parametrize(
    ("changes", "error", "part"),
    [
        ({"key": "absent"}, UnknownArtifactError, "key"),
        ({"bucket": "absent"}, UnknownArtifactError, "key"),
        ({"digest": digest(b"else")}, DigestMismatchError, "digest"),
        ({"size": 7}, DigestMismatchError, "size"),
    ],
)
@pytest.mark.parametrize("at", ["", "/files/1", "/a/b"])
def test_a_fact_about_an_artifact_that_is_absent_or_different_is_refused(
    changes: dict[str, Any], error: type[FactError], part: str, at: str
) -> None:
    make_boundary()
    right = reference(put().artifact)
    wrong = {**right, **changes}
    stated = {"": wrong, "/files/1": {"files": [right, wrong]}, "/a/b": {"a": {"b": wrong, "c": right}}}[at]
    with pytest.raises(error) as caught:
        ledger.append(draft(1, object_json=stated))
    assert type(caught.value) is error
    assert caught.value.pointer == f"/fact/object_json{at}/{part}"
    assert not ArtifactReference.objects.exists()
    # Whoever appends may have no right to the bucket, and learns nothing of what is in it.
    assert digest(BODY) not in str(caught.value)
    assert str(len(BODY)) not in str(caught.value)


def test_a_fact_about_an_artifact_that_is_there_is_kept_and_keeps_it() -> None:
    make_boundary()
    artifact = put().artifact
    assert ledger.append(draft(1, object_json=reference(artifact))).offset == 0
    assert ledger.append(draft(1, object_json=reference(artifact))).is_duplicate
    artifact.refresh_from_db()
    assert artifact.is_referenced
    assert [one.offset for one in artifact.references.all()] == [0]


def test_every_artifact_that_a_fact_refers_to_is_kept_wherever_it_is_named() -> None:
    make_boundary()
    first, second, third = (put(key=key).artifact for key in ("a", "b", "c"))
    orphan = put(key="orphan").artifact
    stated = {
        **reference(first),
        "files": [reference(second), {"pages": (reference(third),)}, reference(second, note="again")],
        "mentions": [{"bucket": BUCKET, "key": "orphan"}],
    }
    ledger.append(draft(1, object_json=stated))
    ledger.append(draft(2, object_json=[reference(first)]))
    Artifact.objects.update(put_at="2026-01-01T00:00:00Z")
    assert artifacts.sweep() == 1
    assert set(Artifact.objects.values_list("key", flat=True)) == {"a", "b", "c"}
    assert not Artifact.objects.filter(pk=orphan.pk).exists()
    assert sorted(ArtifactReference.objects.values_list("artifact__key", "offset")) == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]


def test_a_fact_may_refer_to_more_artifacts_than_one_statement_can_name() -> None:
    make_boundary()
    told = [reference(put(key=f"k{number}").artifact) for number in range(3)]
    made = Artifact.objects.bulk_create(ArtifactFactory.build_batch(1200, bucket=BUCKET, digest="d"))
    told += [{"bucket": BUCKET, "key": one.key, "digest": "d", "size": 1} for one in made]
    ledger.append(draft(1, object_json={"files": told}))
    assert ArtifactReference.objects.count() == 1203
    assert not Artifact.objects.filter(is_referenced=False).exists()


def test_a_size_may_be_written_as_a_fraction() -> None:
    make_boundary()
    artifact = put().artifact
    ledger.append(draft(1, object_json=reference(artifact)))
    assert ledger.append(draft(1, object_json=reference(artifact, size=float(len(BODY))))).is_duplicate
    assert ledger.append(draft(2, object_json=reference(artifact, size=float(len(BODY))))).offset == 1
    assert ArtifactReference.objects.count() == 2


@pytest.mark.postgresql
def test_no_lock_is_held_while_bytes_arrive() -> None:
    def look(_at: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'")
            assert cursor.fetchone() == (0,)

    artifacts.put(BUCKET, "k", Stream(BODY, before=look), by="tests")
