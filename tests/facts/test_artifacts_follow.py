"""Artifacts that follow their facts from one deployment to another: there before the fact, and the same bytes."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from facts import artifacts, ledger, provisioning
from facts.client import BoundaryClient
from facts.core.errors import AlarmError, ArtifactUnavailableError, FactError, ProvisioningError, UnreachableError
from facts.forwarding import hand_over, handoff, source_of
from facts.forwarding.sources import PeerSource
from facts.ledger import gating, holding
from facts.models import Artifact, ArtifactReference, Boundary, ForwardedFact
from tests.commands import running
from tests.facts.deployments import Deployment, Server, deployment
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.peers import keep_token
from tests.facts.upload_bytes import BUCKET
from tests.faults.relay import relay_to
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_empty_storage")]
LARGE = bytes(range(256)) * 8192
HOLDER = "tests"


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Deployment]:
    with deployment(tmp_path / "plant") as made:
        yield made


@pytest.fixture
def server(plant: Deployment) -> Iterator[Server]:
    with plant.server() as made:
        yield made


@pytest.fixture
def producer(plant: Deployment, server: Server) -> Iterator[BoundaryClient]:
    """A client of the plant; and a boundary here that pulls facts and artifacts from it."""
    *_, replicator, mes = plant.commands(
        ["zone", "create", PLANT],
        ["zone", "create", OFFICE],
        ["boundary", "create", PLANT, OFFICE],
        ["consumer", "create", "office", "--boundary", PLANT, OFFICE],
        ["create_api_client", "replicator", "--consumer", "office", "--bucket", BUCKET],
        ["create_api_client", "mes", "--zone", PLANT, "--target-zone", OFFICE, "--bucket", BUCKET],
    )
    boundary = make_boundary(source_url=server.url, source_token_file=keep_token(replicator), with_artifacts=True)
    assert holding.hold(boundary, HOLDER)
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    with BoundaryClient(server.url, mes.strip()) as client:
        yield client


def stored(client: BoundaryClient, key: str, body: bytes) -> dict[str, Any]:
    return client.put_object(BUCKET, key, body, media_type="application/pdf")._asdict()


def hand() -> int:
    boundary = Boundary.objects.select_related("from_zone", "to_zone").get()
    source = source_of(boundary)
    try:
        return hand_over(boundary, source, holder=HOLDER).new
    finally:
        source.close()


def content(key: str) -> bytes:
    return b"".join(artifacts.open_slice(artifacts.find(BUCKET, key)))


def test_a_fact_arrives_after_its_artifacts_and_protects_them(producer: BoundaryClient) -> None:
    first, second = stored(producer, "a/first.pdf", LARGE), stored(producer, "second.pdf", b"short")
    producer.append(draft(1, object_json={"files": [first, {"page": second}]}))
    producer.append(draft(2, object_json=first))
    producer.append(draft(3))
    assert hand() == 3
    assert (content("a/first.pdf"), content("second.pdf")) == (LARGE, b"short")
    assert set(Artifact.objects.values_list("media_type", "is_referenced", "created_by")) == {
        ("application/pdf", True, f"peer {PLANT}")
    }
    assert sorted(ArtifactReference.objects.values_list("artifact__key", "offset")) == [
        ("a/first.pdf", 0),
        ("a/first.pdf", 1),
        ("second.pdf", 0),
    ]
    Artifact.objects.update(put_at="2026-01-01T00:00:00Z")
    assert artifacts.sweep() == 0
    assert len(ledger.fetch("erp").facts) == 3


def test_a_fact_whose_artifact_is_damaged_at_the_peer_waits_and_those_before_it_do_not(
    producer: BoundaryClient, plant: Deployment
) -> None:
    producer.append(draft(1))
    told = stored(producer, "order.pdf", LARGE)
    producer.append(draft(2, object_json=told))
    stored_files = [path for path in Path(plant.variables["ERGON_DATA_DIR"], "artifacts").rglob("*") if path.is_file()]
    body = bytearray(stored_files[0].read_bytes())
    body[-1] ^= 1
    stored_files[0].write_bytes(body)
    assert hand() == 1
    # The first download has broken off; from then on the peer refuses it.
    with pytest.raises(ArtifactUnavailableError) as caught:
        hand()
    assert "of offset 1 cannot be pulled" in caught.value.message
    assert not Artifact.objects.exists()
    assert Boundary.objects.get().frontier == 0
    assert stored(producer, "order.pdf", LARGE) == told  # mended by uploading it again
    assert hand() == 1
    assert content("order.pdf") == LARGE


def test_a_key_that_has_other_bytes_here_raises_the_alarm(producer: BoundaryClient) -> None:
    artifacts.put(BUCKET, "order.pdf", io.BytesIO(b"ours"), by="tests")
    producer.append(draft(1))
    producer.append(draft(2, object_json=[stored(producer, "order.pdf", b"theirs")]))
    producer.append(draft(3))
    with pytest.raises(AlarmError, match="here it has other bytes") as caught:
        hand()
    assert list(ForwardedFact.objects.values_list("offset", flat=True)) == [0]
    assert content("order.pdf") == b"ours"
    gating.raise_alarm(Boundary.objects.get().pk, caught.value)
    ledger.skip(PLANT, OFFICE, 1, by="ada", reason="the plant reuses keys")
    assert hand() == 1
    assert [offset for offset, _ in ledger.fetch("erp").facts] == [0, 1, 2]


def test_a_token_without_the_bucket_is_told_so(producer: BoundaryClient, plant: Deployment) -> None:
    (token,) = plant.commands(["create_api_client", "narrow", "--consumer", "office"])
    keep_token(token)
    producer.append(draft(1, object_json=stored(producer, "order.pdf", b"short")))
    with pytest.raises(FactError) as caught:
        hand()
    assert caught.value.code == "zone_not_authorized"
    assert f"the artifact {BUCKET}/order.pdf of offset 0 cannot be pulled" in caught.value.message


@pytest.mark.postgresql
def test_the_command_hands_artifacts_over_too(producer: BoundaryClient) -> None:
    Boundary.objects.update(held_by=None, held_until=None)
    producer.append(draft(1, object_json=stored(producer, "order.pdf", LARGE)))
    with running("forward", "--json"):
        eventually(ForwardedFact.objects.exists, "the fact has arrived")
        assert hashlib.sha256(content("order.pdf")).digest() == hashlib.sha256(LARGE).digest()


def test_artifacts_follow_from_a_peer_only() -> None:
    with pytest.raises(ProvisioningError, match="name it as the source"):
        make_boundary(with_artifacts=True)


def test_a_download_that_stands_still_is_given_up_and_made_anew(
    producer: BoundaryClient, server: Server, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.append(draft(1, object_json=stored(producer, "stuck.pdf", LARGE)))
    settings.ERGON_HANDOFF_TIMEOUT = 1.0
    monkeypatch.setattr(handoff, "SLOWEST", len(LARGE))
    with relay_to(server.url) as relay:
        Boundary.objects.update(source_url=relay.address.replace("//@", "//"))
        download = PeerSource.open_artifact

        def fall_silent(*where: Any) -> Any:
            relay.silence()
            return download(*where)

        monkeypatch.setattr(PeerSource, "open_artifact", fall_silent)
        with pytest.raises(UnreachableError) as caught:
            hand()
        assert "stuck.pdf of offset 0 cannot be pulled" in caught.value.message
        assert not Artifact.objects.exists()
        monkeypatch.setattr(PeerSource, "open_artifact", download)
        relay.cut()
        relay.resume()
        assert hand() == 1
    assert content("stuck.pdf") == LARGE
