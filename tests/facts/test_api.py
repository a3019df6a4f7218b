"""The boundary over HTTP, as somebody sees it who means it ill: every refusal has its code, and changes nothing."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.test import Client

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import ledger, provisioning
from facts.api.problems import STATUSES
from facts.models import Boundary, Consumer, Fact
from tests.api.api_clients import pointers, problem
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary

pytestmark = pytest.mark.django_db

GRANT: dict[str, Any] = {
    "zones": [PLANT],
    "target_zones": [OFFICE, "Mars"],
    "consumers": ["erp", "gone"],
    "buckets": ["b"],
}
RAW = json.dumps(draft(1))


def number(text: str) -> str:
    """The body with another number in it."""
    return RAW.replace(": 12,", f": {text},")


@pytest.fixture
def boundary() -> Boundary:
    made = make_boundary()
    provisioning.create_zone("Harbour", by="tests")
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    return made


@pytest.fixture
def api(boundary: Boundary) -> Client:
    return api_of("press", **GRANT)


def api_of(name: str, **grant: Any) -> Client:
    token = clients.create(name, Grant(**grant), by="tests").token.text
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


def post(api: Client, address: str, body: Any) -> Any:
    sent = body if isinstance(body, str | bytes) else json.dumps(body)
    return api.post(f"/api/v1/{address}", sent, content_type="application/json")


def look_up(api: Client, message_id: str, **zones: str) -> Any:
    asked = urlencode({"from_zone": PLANT, "to_zone": OFFICE} | zones)
    return api.get(f"/api/v1/facts/{quote(message_id, safe='')}?{asked}")


def standing() -> list[Any]:
    """All that a call could have changed."""
    cursors = list(Consumer.objects.order_by("pk").values_list("name", "cursor"))
    counters = list(Boundary.objects.order_by("pk").values_list("next_offset", "stored_bytes", "frontier"))
    return [Fact.objects.count(), counters, cursors]


def test_a_new_fact_is_201_and_the_same_again_200_with_its_offset(api: Client) -> None:
    first, again = post(api, "facts", draft(1)), post(api, "facts", draft(1))
    assert (first.status_code, first.json()) == (
        201,
        {"offset": 0, "message_id": "order-1-released", "duplicate": False},
    )
    assert (again.status_code, again.json()) == (
        200,
        {"offset": 0, "message_id": "order-1-released", "duplicate": True},
    )
    assert first.headers["Content-Type"] == "application/json"


REFUSED: dict[str, tuple[Any, int, str, list[str]]] = {
    "not JSON": ("{", 400, "invalid_fact", []),
    "not an object": ("[]", 400, "invalid_fact", []),
    "null": ("null", 400, "invalid_fact", []),
    "nothing": ("", 400, "invalid_fact", ["/envelope"]),
    "not UTF-8": (RAW.encode().replace(b"Maria", b"\xff"), 400, "invalid_fact", []),
    "a name twice": (RAW.replace('"by"', '"quantity": 1, "by"'), 400, "invalid_fact", []),
    "a name twice in the envelope": (
        RAW.replace('"from_zone"', '"to_zone": "x", "from_zone"'),
        400,
        "invalid_fact",
        [],
    ),
    "NaN": (number("NaN"), 400, "invalid_fact", []),
    "infinity": (number("-Infinity"), 400, "invalid_fact", []),
    "a number beyond floats": (number("1e999"), 400, "invalid_fact", []),
    "an integer beyond 2^53": (number(str(2**53)), 400, "invalid_fact", []),
    "the same as a fraction": (number("9007199254740992.0"), 400, "invalid_fact", []),
    "a whole number in a fraction's clothes": (number("1e20"), 400, "invalid_fact", []),
    "a very negative integer": (number(str(-(2**53))), 400, "invalid_fact", []),
    "an endless integer": (number("9" * 5000), 400, "invalid_fact", []),
    "half a surrogate pair": (RAW.replace("Maria", "\\ud800"), 400, "invalid_fact", []),
    "U+0000": (RAW.replace("Maria", "\\u0000"), 400, "invalid_fact", []),
    "U+0000 in a name": (RAW.replace('"by"', '"\\u0000"'), 400, "invalid_fact", []),
    "bottomless": (number("[" * 5000 + "]" * 5000), 400, "invalid_fact", []),
    "an unknown field": ({**draft(1), "extra": 1}, 400, "invalid_fact", ["/extra"]),
    "an unknown field in the envelope": (draft(1, extra=1), 400, "invalid_fact", ["/envelope/extra"]),
    "an unknown field in the fact": (draft(1, fact={"a/b~c": 1}), 400, "invalid_fact", ["/fact/a~1b~0c"]),
    "no envelope": ({"fact": draft(1)["fact"]}, 400, "invalid_fact", ["/envelope"]),
    "an envelope that is a list": ({**draft(1), "envelope": []}, 400, "invalid_fact", ["/envelope"]),
    "a fact that is a text": ({**draft(1), "fact": "x"}, 400, "invalid_fact", ["/fact"]),
    "an id that is a number": (draft(1, message_id=7), 400, "invalid_fact", ["/envelope/message_id"]),
    "an id that is empty": (draft(1, message_id=""), 400, "invalid_fact", ["/envelope/message_id"]),
    "an id that is too long": (draft(1, message_id="x" * 257), 400, "invalid_fact", ["/envelope/message_id"]),
    "an id with a line break": (draft(1, message_id="a\nb"), 400, "invalid_fact", ["/envelope/message_id"]),
    "a time that is a text": (
        draft(1, produced_at_unix_ms="1741248600000"),
        400,
        "invalid_fact",
        ["/envelope/produced_at_unix_ms"],
    ),
    "a time that is true": (draft(1, produced_at_unix_ms=True), 400, "invalid_fact", ["/envelope/produced_at_unix_ms"]),
    "labels in labels": (draft(1, labels={"a": {"b": "c"}}), 400, "invalid_fact", ["/envelope/labels/a"]),
    "a correlation that is null": (draft(1, correlation_id=None), 400, "invalid_fact", ["/envelope/correlation_id"]),
    "a subject without a kind": (draft(1, fact={"subject": "WO-1"}), 400, "invalid_fact", ["/fact/subject"]),
    "a predicate in capitals": (draft(1, fact={"predicate": "Was"}), 400, "invalid_fact", ["/fact/predicate"]),
    "a value of too many bytes": (draft(1, object_json="雪" * 87_381), 413, "payload_too_large", ["/fact/object_json"]),
    "half a reference": (
        draft(1, object_json={"bucket": "b", "key": "k", "digest": 1}),
        400,
        "invalid_fact",
        ["/fact/object_json/digest"],
    ),
    "too large a value": (
        draft(1, object_json="x" * 262_144),
        413,
        "payload_too_large",
        ["/fact/object_json"],
    ),
    "too large a body": ('{"a":"' + "x" * (2 * 1024 * 1024) + '"}', 413, "payload_too_large", []),
    "another's zone": (draft(1, from_zone=OFFICE, to_zone=PLANT), 403, "zone_not_authorized", ["/envelope/from_zone"]),
    "another's target": (draft(1, to_zone="Harbour"), 403, "zone_not_authorized", ["/envelope/to_zone"]),
    "an unknown zone": (draft(1, to_zone="Mars"), 404, "unknown_zone", ["/envelope/to_zone"]),
    "an id with another content": (draft(0, object_json=1), 409, "conflicting_duplicate", ["/envelope/message_id"]),
    "a new stamp on an old fact": (
        draft(0, produced_at_unix_ms=1741248600001),
        409,
        "conflicting_duplicate",
        ["/envelope/message_id"],
    ),
    "an artifact that is not there": (
        draft(1, object_json={"bucket": "b", "key": "k", "digest": "sha256:0", "size": 1}),
        422,
        "unknown_artifact",
        ["/fact/object_json/key"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_append_says_why_and_where_and_changes_nothing(api: Client, name: str) -> None:
    ledger.append(draft(0))
    before = standing()
    body, status, code, places = REFUSED[name]
    told = problem(post(api, "facts", body), status, code)
    assert pointers(told) == places if places else "errors" not in told
    assert standing() == before
    assert post(api, "facts", draft(2)).json()["offset"] == 1


def test_a_producer_that_stamps_anew_is_told_so(api: Client) -> None:
    post(api, "facts", draft(1))
    told = problem(post(api, "facts", draft(1, produced_at_unix_ms=1741248600001)), 409, "conflicting_duplicate")
    assert "not use a new one" in told["detail"]


def test_where_no_boundary_leads_nothing_is_appended(boundary: Boundary) -> None:
    api = api_of("press", zones=[PLANT], target_zones=["Harbour"])
    told = problem(post(api, "facts", draft(1, to_zone="Harbour")), 404, "unknown_boundary")
    assert pointers(told) == ["/envelope/to_zone"]


def test_where_facts_are_pulled_from_a_peer_nothing_is_appended_and_the_refusal_says_so() -> None:
    make_boundary(source_url="https://plant.example", source_token_file="plant")
    api = api_of("press", **GRANT)
    told = problem(post(api, "facts", draft(1)), 403, "zone_not_authorized")
    assert "pulled from a peer" in told["detail"]
    assert "plant.example" not in told["detail"]
    assert pointers(told) == ["/envelope/from_zone"]
    [result] = post(api, "facts/batch", {"facts": [draft(1)]}).json()["results"]
    assert (result["status"], result["problem"]["code"]) == (403, "zone_not_authorized")
    assert not Fact.objects.exists()


def test_a_full_buffer_says_when_to_come_back_and_still_answers_repeats(api: Client) -> None:
    post(api, "facts", draft(1))
    provisioning.limit(PLANT, OFFICE, provisioning.Allowance(row_ceiling=1), by="tests", reason="")
    before = standing()
    full = post(api, "facts", draft(2))
    problem(full, 429, "buffer_full")
    assert int(full.headers["Retry-After"]) == full.json()["retry_after"] > 0
    [item] = post(api, "facts/batch", {"facts": [draft(2)]}).json()["results"]
    assert (item["status"], item["problem"]["retry_after"]) == (429, full.json()["retry_after"])
    assert post(api, "facts", draft(1)).status_code == 200
    assert standing() == before


@pytest.mark.parametrize(
    ("method", "address"),
    [
        ("post", "facts"),
        ("post", "facts/batch"),
        ("get", "facts/x?from_zone=a&to_zone=b"),
        ("get", "consumers/erp"),
        ("get", "consumers/erp/facts"),
        ("post", "consumers/erp/confirm"),
    ],
)
def test_without_a_token_or_a_scope_nothing_opens(boundary: Boundary, method: str, address: str) -> None:
    before = standing()
    stranger = Client(raise_request_exception=False)
    for headers in ({}, {"Authorization": "Bearer ergon_no_such"}, {"Authorization": "Basic YTpi"}):
        problem(getattr(stranger, method)(f"/api/v1/{address}", headers=headers), 401, "unauthenticated")
    reader = api_of("reader", scopes=["policies:read"], **GRANT)
    told = problem(getattr(reader, method)(f"/api/v1/{address}"), 403, "permission_denied")
    assert "lacks the scope facts:" in told["detail"]
    assert standing() == before


def test_one_client_never_sees_what_is_anothers(boundary: Boundary) -> None:
    ledger.append(draft(1))
    spy = api_of("spy", zones=["Harbour"], target_zones=[OFFICE], consumers=["spy"])
    before = standing()
    for answer in (
        look_up(spy, "order-1-released"),
        spy.get("/api/v1/consumers/erp"),
        spy.get("/api/v1/consumers/erp/facts"),
        post(spy, "consumers/erp/confirm", {"offset": 0}),
        post(spy, "facts", draft(1)),
        # Whether it exists is nobody's business either.
        spy.get("/api/v1/consumers/no-such/facts"),
        look_up(spy, "no-such"),
    ):
        problem(answer, 403, "zone_not_authorized")
        assert b"Maria" not in answer.content
    assert standing() == before


def test_a_batch_of_a_thousand_is_judged_one_by_one_and_in_order(api: Client) -> None:
    post(api, "facts", draft(0))
    mixed: list[Any] = [draft(number) for number in range(1000)]
    mixed[7] = draft(7, from_zone=OFFICE, to_zone=PLANT)
    mixed[8] = draft(0, object_json={"other": 1})
    mixed[9] = {"envelope": {}, "fact": {}}
    mixed[10] = draft(11)
    mixed[12] = "nonsense"
    mixed[13] = draft(13, to_zone="Mars")
    mixed[14] = draft(14, object_json={"bucket": "b", "key": "k", "digest": "sha256:0", "size": 1})
    mixed[15] = draft(15, object_json="x" * 262_144)
    mixed[16] = draft(16, to_zone="Mars")
    answer = post(api, "facts/batch", {"facts": mixed})
    assert answer.status_code == 200
    results = answer.json()["results"]
    told = {place: (one["status"], one.get("problem", {}).get("code")) for place, one in enumerate(results)}
    odd = {place: found for place, found in told.items() if found != (201, None)}
    assert odd == {
        0: (200, None),
        7: (403, "zone_not_authorized"),
        8: (409, "conflicting_duplicate"),
        9: (400, "invalid_fact"),
        11: (200, None),
        12: (400, "invalid_fact"),
        13: (404, "unknown_zone"),
        14: (422, "unknown_artifact"),
        15: (413, "payload_too_large"),
        16: (404, "unknown_zone"),
    }
    assert {place: pointers(results[place]["problem"]) for place, (status, _) in odd.items() if status != 200} == {
        7: ["/facts/7/envelope/from_zone"],
        8: ["/facts/8/envelope/message_id"],
        9: ["/facts/9/envelope/message_id"],
        12: ["/facts/12"],
        13: ["/facts/13/envelope/to_zone"],
        14: ["/facts/14/fact/object_json/key"],
        15: ["/facts/15/fact/object_json"],
        16: ["/facts/16/envelope/to_zone"],
    }
    assert results[11]["offset"] == results[10]["offset"]
    offsets = [one["offset"] for one in results if one["status"] == 201]
    assert offsets == list(range(1, len(offsets) + 1))
    assert Fact.objects.count() == len(offsets) + 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"facts": []}, "/facts"),
        ({"facts": [draft(1)] * 1001}, "/facts"),
        ({"facts": {}}, "/facts"),
        ([draft(1)], "/facts"),
        ({"facts": [draft(1)], "a/b": 1}, "/a~1b"),
    ],
)
def test_a_batch_that_is_none_is_refused_as_a_whole(api: Client, body: Any, pointer: str) -> None:
    assert pointers(problem(post(api, "facts/batch", body), 400, "invalid_fact")) == [pointer]
    assert Fact.objects.count() == 0


NAMES = ["a/b", "a b", "ü/ß 日本 🚀", "%41", "a?b#c", "batch", "..", "a//b", "/a", "a/", "x" * 256, "a+b&c=d;e", '"\\']
NAMES += ["no\u00a0break", "ideographic\u3000space", "\u0915\u094d\u200d\u0937"]


@pytest.mark.parametrize("message_id", NAMES)
def test_a_message_is_looked_up_by_whatever_it_is_called(api: Client, message_id: str) -> None:
    post(api, "facts", draft(1, message_id=message_id))
    found = look_up(api, message_id)
    assert found.status_code == 200, found.content
    assert found.json() == {"offset": 0, "message_id": message_id, **draft(1, message_id=message_id)}


@pytest.mark.parametrize("message_id", ["no-such", "\x00", "a\tb", "\u200e", "x" * 5000])
def test_a_message_that_was_never_appended_is_unknown(api: Client, message_id: str) -> None:
    problem(look_up(api, message_id), 404, "unknown_fact")


def test_a_look_up_needs_both_zones_and_a_boundary_between_them(api: Client) -> None:
    for left_out in ("from_zone", "to_zone"):
        told = problem(look_up(api, "x", **{left_out: ""}), 400, "invalid_fact")
        assert pointers(told) == [f"/{left_out}"]
    problem(look_up(api, "x", to_zone="Mars"), 404, "unknown_zone")
    problem(look_up(api, "x", to_zone="\x00"), 400, "invalid_fact")
    problem(look_up(api, "x", to_zone="Harbour"), 404, "unknown_boundary")


def test_a_fetch_gives_what_comes_after_the_cursor_and_changes_nothing(api: Client) -> None:
    ledger.append_many([draft(number) for number in range(5)])
    before = standing()
    page = api.get("/api/v1/consumers/erp/facts?limit=2").json()
    assert page == {"facts": [{"offset": number, **draft(number)} for number in (0, 1)], "cursor": -1}
    assert api.get("/api/v1/consumers/erp/facts?limit=2").json() == page
    assert standing() == before
    assert post(api, "consumers/erp/confirm", {"offset": 3}).json() == {"cursor_advanced_to": 3}
    assert [one["offset"] for one in api.get("/api/v1/consumers/erp/facts").json()["facts"]] == [4]
    told = api.get("/api/v1/consumers/erp").json()
    assert told == {"name": "erp", "from_zone": PLANT, "to_zone": OFFICE, "cursor": 3, "newest": 4}


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=1.5", "limit=", "wait=-1", "wait=31", "wait=nan"]
)
def test_a_fetch_that_asks_for_nonsense_is_refused_by_name(api: Client, query: str) -> None:
    told = problem(api.get(f"/api/v1/consumers/erp/facts?{query}"), 400, "invalid_fact")
    assert pointers(told) == [f"/{query.partition('=')[0]}"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"offset": -1}, 400, "invalid_fact"),
        ({"offset": "1"}, 400, "invalid_fact"),
        ({"offset": 1.0}, 400, "invalid_fact"),
        ({"offset": True}, 400, "invalid_fact"),
        ({"offset": None}, 400, "invalid_fact"),
        ({}, 400, "invalid_fact"),
        ({"offset": 1, "also": 2}, 400, "invalid_fact"),
        ([1], 400, "invalid_fact"),
        ("{", 400, "invalid_fact"),
        ('{"offset": 1, "offset": 2}', 400, "invalid_fact"),
        ({"offset": 5}, 409, "offset_out_of_range"),
        ({"offset": 10**30}, 409, "offset_out_of_range"),
    ],
)
def test_a_confirmation_that_cannot_be_changes_nothing(api: Client, body: Any, status: int, code: str) -> None:
    ledger.append_many([draft(number) for number in range(5)])
    before = standing()
    problem(post(api, "consumers/erp/confirm", body), status, code)
    assert standing() == before


@pytest.mark.parametrize(
    ("body", "pointer"), [({"offset": 1, "a/b": 2}, "/a~1b"), ({"foo": 2}, "/foo"), ({}, "/offset"), ([1], "/offset")]
)
def test_a_confirmation_with_another_field_is_refused_by_its_name(api: Client, body: Any, pointer: str) -> None:
    assert pointers(problem(post(api, "consumers/erp/confirm", body), 400, "invalid_fact")) == [pointer]


def test_confirming_again_or_less_answers_the_cursor(api: Client) -> None:
    ledger.append_many([draft(number) for number in range(5)])
    for offset in (3, 3, 0):
        assert post(api, "consumers/erp/confirm", {"offset": offset}).json() == {"cursor_advanced_to": 3}


def test_a_consumer_is_never_made_by_a_call(api: Client) -> None:
    for answer in (
        api.get("/api/v1/consumers/gone"),
        api.get("/api/v1/consumers/gone/facts"),
        post(api, "consumers/gone/confirm", {"offset": 0}),
    ):
        problem(answer, 404, "unknown_consumer")
    assert Consumer.objects.count() == 1


def test_history_that_is_gone_is_told_as_gone(api: Client) -> None:
    ledger.append_many([draft(number) for number in range(5)])
    Boundary.objects.update(first_offset=3)
    problem(api.get("/api/v1/consumers/erp/facts"), 410, "history_truncated")
    problem(post(api, "consumers/erp/confirm", {"offset": 1}), 410, "history_truncated")
    Consumer.objects.update(cursor=2)
    assert post(api, "consumers/erp/confirm", {"offset": 2}).json() == {"cursor_advanced_to": 2}
    problem(post(api, "consumers/erp/confirm", {"offset": 1}), 410, "history_truncated")
    assert post(api, "consumers/erp/confirm", {"offset": 3}).status_code == 200


@pytest.mark.parametrize(
    "address", ["facts/order-0-released?from_zone=Plant+A&to_zone=Enterprise", "consumers/erp", "consumers/erp/facts"]
)
def test_head_answers_as_get_does_without_the_body(api: Client, address: str) -> None:
    ledger.append(draft(0))
    head, whole = api.head(f"/api/v1/{address}"), api.get(f"/api/v1/{address}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"] == whole.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("address", "allowed"),
    [("facts", {"POST"}), ("consumers/erp", {"GET", "HEAD"}), ("consumers/erp/confirm", {"POST"})],
)
def test_options_tell_the_methods_and_others_are_refused(api: Client, address: str, allowed: set[str]) -> None:
    options = api.options(f"/api/v1/{address}")
    assert options.status_code == 200
    assert set(options.headers["Allow"].split(", ")) == allowed | {"OPTIONS"}
    problem(api.delete(f"/api/v1/{address}"), 405, "method_not_allowed")
    problem(api.put(f"/api/v1/{address}"), 405, "method_not_allowed")


def test_bodies_that_are_no_json_by_their_type_are_refused(api: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        problem(api.post("/api/v1/facts", RAW, content_type=kind), 415, "unsupported_media_type")
    assert Fact.objects.count() == 0


def test_every_code_of_the_specification_has_its_status() -> None:
    assert {code: int(status) for code, status in STATUSES.items()} == {
        "invalid_fact": 400,
        "invalid_provisioning": 400,
        "zone_not_authorized": 403,
        **dict.fromkeys(
            ["unknown_consumer", "unknown_zone", "unknown_boundary", "unknown_fact", "unknown_object"], 404
        ),
        **dict.fromkeys(["conflicting_duplicate", "object_conflict", "offset_out_of_range"], 409),
        **dict.fromkeys(["history_truncated", "artifact_unavailable"], 410),
        "length_required": 411,  # of our own: an upload that could be cut without anybody noticing
        "payload_too_large": 413,
        **dict.fromkeys(["unknown_artifact", "digest_mismatch"], 422),
        "buffer_full": 429,
        "storage_unavailable": 503,  # of our own: the storage of artifacts fails
    }


SPELLINGS: dict[str, Callable[[str], str]] = {
    "blanks": lambda text: text.replace(": ", " :\t").replace(", ", " ,\n"),
    "1.0 for 1": lambda text: text.replace(": 12,", ": 12.0,"),
    "an exponent": lambda text: text.replace(": 12,", ": 1.2e1,"),
    "escapes": lambda text: text.replace("Maria", "M\\u0061ria"),
    "another order": lambda text: json.dumps({name: json.loads(text)[name] for name in ("fact", "envelope")}),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_same_content_spelt_otherwise_is_a_repeat(api: Client, name: str) -> None:
    post(api, "facts", RAW)
    assert post(api, "facts", SPELLINGS[name](RAW)).status_code == 200
    assert Fact.objects.count() == 1
