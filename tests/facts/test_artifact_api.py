"""Artifacts over HTTP, by the real server: raw bytes in and out, ranges, conditions, and who may do it."""

import http.client
import io
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts.models import Artifact
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.facts.upload_bytes import BUCKET, digest, digest_header, files, reference
from tests.processes import LIMIT, Site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_empty_storage")]
BODY = bytes(range(256)) * 4
KEY = "2026/order 7.pdf"


def token(name: str = "mes", **grants: Any) -> str:
    grant = {"scopes": ["objects:put", "objects:get", "facts:append"], "buckets": [BUCKET], **grants}
    return clients.create(name, Grant(**grant), by="tests").token.text


@pytest.fixture
def api(site: Site) -> Iterator[httpx.Client]:
    """A client that may use one bucket."""
    make_boundary()
    headers = {"Authorization": f"Bearer {token(zones=[PLANT], target_zones=[OFFICE])}"}
    with httpx.Client(base_url=f"{site.url}/api/v1/", headers=headers, timeout=30) as calls:
        yield calls


def at(key: str = KEY, bucket: str = BUCKET) -> str:
    return f"objects/{bucket}/{quote(key)}"


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    return body


def test_an_upload_is_answered_with_what_a_fact_needs(api: httpx.Client) -> None:
    answer = api.put(at(), content=BODY, headers={"Content-Type": "application/pdf"})
    assert answer.status_code == 201
    told = answer.json()
    assert told == {
        "bucket": BUCKET,
        "key": KEY,
        "digest": digest(BODY),
        "size": len(BODY),
        "media_type": "application/pdf",
    }
    again = api.put(at(), content=BODY)
    assert (again.status_code, again.json()) == (200, told)
    appended = api.post("facts", json=draft(1, object_json={**told, "file_name": "order.pdf"}))
    assert appended.status_code == 201


def test_a_fact_about_what_is_not_there_or_is_different_is_refused(api: httpx.Client) -> None:
    api.put(at(), content=BODY)
    artifact = Artifact.objects.get()
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"key": "absent"}, "unknown_artifact"),
        ({"digest": digest(b"")}, "digest_mismatch"),
        ({"size": 1}, "digest_mismatch"),
    ]
    for changes, code in refusals:
        for form in (reference(artifact, **changes), {"files": [reference(artifact, **changes)]}):
            problem(api.post("facts", json=draft(1, object_json=form)), 422, code)
    right, wrong = reference(artifact), reference(artifact, size=1)
    facts = [draft(1, object_json=wrong), draft(2, object_json=right)]
    results = api.post("facts/batch", json={"facts": facts}).json()["results"]
    assert [result["status"] for result in results] == [422, 201]


def test_to_refer_to_an_artifact_needs_the_right_to_its_bucket(api: httpx.Client, site: Site) -> None:
    api.put(at(), content=BODY)
    told = reference(Artifact.objects.get())
    other = token("other", buckets=["payroll"], zones=[PLANT], target_zones=[OFFICE])
    with httpx.Client(base_url=api.base_url, headers={"Authorization": f"Bearer {other}"}, timeout=LIMIT) as stranger:
        for form, pointer in ((told, ""), ({"files": [{"of": told}]}, "/files/0/of")):
            body = problem(stranger.post("facts", json=draft(1, object_json=form)), 403, "zone_not_authorized")
            assert body["errors"][0]["pointer"] == f"/fact/object_json{pointer}/bucket"
        results = stranger.post("facts/batch", json={"facts": [draft(1, object_json=[told]), draft(2)]}).json()
        assert [result["status"] for result in results["results"]] == [403, 201]
    assert not Artifact.objects.get().is_referenced
    assert api.post("facts", json=draft(1, object_json={"files": [{"of": told}]})).status_code == 201
    assert Artifact.objects.get().is_referenced


@pytest.mark.parametrize("media_type", ["application/json", "text/html", "multipart/form-data", None])
def test_bytes_are_bytes_whatever_they_are_called(api: httpx.Client, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    assert api.put(at(), content=b"{not json", headers=headers).status_code == 201
    answer = api.get(at(), headers={"Accept": "image/png"})
    assert answer.content == b"{not json"
    assert answer.headers["Content-Type"] == (media_type or "application/octet-stream")


def test_a_download_says_what_it_is_and_is_nothing_to_look_at(api: httpx.Client) -> None:
    api.put(at(), content=BODY, headers={"Content-Type": "text/html"})
    for answer in (api.get(at()), api.head(at())):
        assert answer.status_code == 200
        headers = answer.headers
        assert headers["Content-Length"] == str(len(BODY))
        assert headers["Content-Type"] == "text/html"
        assert headers["ETag"] == f'"{digest(BODY)[7:]}"'
        assert headers["Repr-Digest"] == headers["Content-Digest"] == digest_header(BODY)
        assert headers["Accept-Ranges"] == "bytes"
        assert headers["Content-Disposition"] == 'attachment; filename="order 7.pdf"'
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert api.get(at()).content == BODY
    assert api.head(at()).content == b""


@pytest.mark.parametrize(
    ("asked", "start", "stop"), [("0-0", 0, 1), ("10-19", 10, 20), ("1000-", 1000, 1024), ("-24", 1000, 1024)]
)
def test_a_range_is_answered_with_that_part(api: httpx.Client, asked: str, start: int, stop: int) -> None:
    api.put(at(), content=BODY)
    answer = api.get(at(), headers={"Range": f"bytes={asked}"})
    assert (answer.status_code, answer.content) == (206, BODY[start:stop])
    assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/1024"
    assert answer.headers["Content-Length"] == str(stop - start)
    assert answer.headers["Repr-Digest"] == digest_header(BODY)
    assert "Content-Digest" not in answer.headers


def test_a_range_behind_the_end_is_refused_with_the_size(api: httpx.Client) -> None:
    api.put(at(), content=BODY)
    answer = api.get(at(), headers={"Range": "bytes=1024-"})
    problem(answer, 416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == "bytes */1024"


def test_conditions_are_honoured(api: httpx.Client) -> None:
    api.put(at(), content=BODY)
    etag = api.head(at()).headers["ETag"]
    unchanged = api.get(at(), headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["ETag"] == etag
    assert api.get(at(), headers={"If-None-Match": '"else"'}).status_code == 200
    assert api.get(at(), headers={"If-Match": '"else"'}).status_code == 412
    ranged = {"Range": "bytes=0-9"}
    assert api.get(at(), headers={**ranged, "If-Range": etag}).status_code == 206
    for other in ('"else"', f"W/{etag}", "Sun, 15 Nov 2026 08:00:00 GMT"):
        whole = api.get(at(), headers={**ranged, "If-Range": other})
        assert (whole.status_code, len(whole.content)) == (200, 1024)


def test_what_is_not_there_is_unknown(api: httpx.Client) -> None:
    problem(api.get(at()), 404, "unknown_object")
    assert api.head(at()).status_code == 404


def test_other_bytes_are_a_conflict_and_the_first_stay(api: httpx.Client) -> None:
    api.put(at(), content=BODY)
    assert problem(api.put(at(), content=b"else"), 409, "object_conflict")["errors"][0]["pointer"] == "/key"
    assert api.get(at()).content == BODY
    assert len(files()) == 1


def test_an_announced_digest_is_checked(api: httpx.Client) -> None:
    refused = api.put(at(), content=BODY, headers={"Content-Digest": digest_header(b"else")})
    problem(refused, 422, "digest_mismatch")
    assert (Artifact.objects.count(), files()) == (0, [])
    body = problem(api.put(at(), content=BODY, headers={"Content-Digest": "md5=:AAAA:"}), 400, "invalid_fact")
    assert body["errors"][0]["pointer"] == "/Content-Digest"
    assert api.put(at(), content=BODY, headers={"Content-Digest": digest_header(BODY)}).status_code == 201


@pytest.mark.parametrize("announced", [False, True])
def test_a_body_in_chunks_is_kept_like_any_other(api: httpx.Client, *, announced: bool) -> None:
    headers = {"Content-Digest": digest_header(BODY)} if announced else {}
    pieces = [BODY[:100], BODY[100:101], BODY[101:]]
    assert api.put(at(), content=iter(pieces), headers=headers).json()["digest"] == digest(BODY)
    assert api.put(at(), content=iter(pieces)).status_code == 200
    problem(api.put(at(), content=iter([b"else"])), 409, "object_conflict")
    problem(
        api.put(at("b"), content=iter(pieces), headers={"Content-Digest": digest_header(b"")}), 422, "digest_mismatch"
    )
    assert Artifact.objects.get().is_whole is announced
    assert api.get(at()).content == BODY


def test_nothing_is_an_artifact_too(api: httpx.Client) -> None:
    assert api.put(at(), content=b"").json()["size"] == 0
    answer = api.get(at())
    assert (answer.content, answer.headers["Content-Length"]) == (b"", "0")


def test_a_part_is_not_taken_for_the_whole(api: httpx.Client) -> None:
    answer = api.put(at(), content=BODY, headers={"Content-Range": "bytes 0-1023/9999"})
    problem(answer, 400, "invalid_fact")
    assert files() == []


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("objects/ab/k", "/bucket"),
        ("objects/Batch/k", "/bucket"),
        ("objects/%2E%2E/k", "/bucket"),
        ("objects//k", "/bucket"),
        (f"objects/{BUCKET}/", "/key"),
        (f"objects/{BUCKET}/a/../../secret_key", "/key"),
        (f"objects/{BUCKET}/%2e%2e/%2e%2e/secret_key", "/key"),
        (f"objects/{BUCKET}/..%2Fsecret_key", "/key"),
        (f"objects/{BUCKET}/..%5Csecret_key", "/key"),
        (f"objects/{BUCKET}//etc/passwd", "/key"),
        (f"objects/{BUCKET}/%2Fetc/passwd", "/key"),
        (f"objects/{BUCKET}/a%00b", "/key"),
        (f"objects/{BUCKET}/a%0Ab", "/key"),
        (f"objects/{BUCKET}/a%0A", "/key"),
        (f"objects/{BUCKET}/a/./b", "/key"),
        (f"objects/{BUCKET}/{'x' * 1025}", "/key"),
    ],
)
def test_a_name_that_would_lead_elsewhere_is_refused(api: httpx.Client, path: str, pointer: str) -> None:
    # Not by httpx, which would tidy the path up before it is sent.
    for method in ("GET", "PUT"):
        address = urlsplit(str(api.base_url))
        connection = http.client.HTTPConnection(address.netloc, timeout=30)
        connection.request(method, f"/api/v1/{path}", b"x", {"Authorization": api.headers["Authorization"]})
        answer = connection.getresponse()
        assert (answer.status, b'"invalid_fact"' in answer.read(), pointer) == (400, True, pointer)
        connection.close()
    assert (Artifact.objects.count(), files()) == (0, [])


def test_a_bucket_of_others_is_closed(api: httpx.Client) -> None:
    for call in (api.get, api.head):
        assert call(at(bucket="payroll")).status_code == 403
    problem(api.put(at(bucket="payroll"), content=BODY), 403, "zone_not_authorized")
    assert (Artifact.objects.count(), files()) == (0, [])


@pytest.mark.parametrize(("scope", "statuses"), [("objects:put", (201, 403)), ("objects:get", (403, 404))])
def test_each_direction_asks_for_its_own_scope(client: Client, scope: str, statuses: tuple[int, int]) -> None:
    headers = {"Authorization": f"Bearer {token(scopes=[scope])}"}
    put = client.put(f"/api/v1/{at()}", BODY, content_type="text/plain", headers=headers)
    got = client.get(f"/api/v1/{at('absent')}", headers=headers)
    assert (put.status_code, got.status_code) == statuses


@pytest.mark.parametrize("header", [None, "Bearer ergon_nobody_knows"])
def test_without_a_token_nothing_is_read(site: Site, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    problem(
        httpx.put(f"{site.url}/api/v1/{at()}", content=BODY, headers=headers, timeout=LIMIT), 401, "unauthenticated"
    )
    assert files() == []


def test_a_server_that_cannot_tell_the_end_of_a_body_asks_for_its_length(client: Client) -> None:
    headers = {"Authorization": f"Bearer {token()}"}
    unmeasured: dict[str, Any] = {"CONTENT_LENGTH": "", "wsgi.input": io.BytesIO(BODY)}
    answer = client.put(f"/api/v1/{at()}", headers=headers, **unmeasured)
    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")


def test_the_document_describes_both_directions(client: Client) -> None:
    paths = client.get("/api/schema/?format=json").json()["paths"]
    operations = paths["/api/v1/objects/{bucket}/{key}"]
    assert set(operations) == {"get", "put"}
    assert "*/*" in operations["put"]["requestBody"]["content"]
    assert {"201", "200", "409", "411", "413", "422"} <= set(operations["put"]["responses"])
    assert {"200", "206", "304", "416"} <= set(operations["get"]["responses"])


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(
    api: httpx.Client, serve_with: Callable[..., Site]
) -> None:
    small = serve_with(ERGON_FACT_LIMITS='{"artifact": 1000}')
    headers = {"Authorization": api.headers["Authorization"]}
    address = f"{small.url}/api/v1/{at()}"
    problem(httpx.put(address, content=BODY, headers=headers, timeout=LIMIT), 413, "payload_too_large")
    problem(httpx.put(address, content=iter([BODY]), headers=headers, timeout=LIMIT), 413, "payload_too_large")
    assert (Artifact.objects.count(), files()) == (0, [])
    assert httpx.put(address, content=BODY[:1000], headers=headers, timeout=LIMIT).status_code == 201
