"""Whatever is sent to whatever takes a body: an answer in words, never a fault of ours."""

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings, strategies as st

from engines.models import DeadLetter
from tests.api.api_clients import client_with, failed, succeeded
from tests.factories import make_pipeline

pytestmark = [pytest.mark.django_db, pytest.mark.once]

SCOPES = ("transactions:submit", "transactions:operate", "dead_letters:operate", "policies:write")
TARGETS = [
    *("transactions", "transactions/batch", "transactions/good/cancel", "transactions/good/replay"),
    *("pipelines/invoices/pause", "pipelines/invoices/resume", "dead-letters/LETTER/replay"),
    *("dead-letters/LETTER/discard", "policies/default/versions", "policies/default/versions/1/activate"),
    *("pipelines", "pipelines/invoices/amend", "schedules"),
    *("dead-letter-groups/GROUP/mute", "dead-letter-groups/GROUP/replay", "dead-letter-groups/GROUP/discard"),
]
FIELDS = (
    *("pipeline", "payload", "id", "priority", "available_at", "dedupe_key", "correlation_id", "metadata"),
    *("transactions", "reason", "policy", "kind", "loop", "steps", "process", "retry", "max_attempts", "timeout"),
    *("canary", "rate", "cap", "name", "task", "executor", "direction", "redacted", "is_enabled"),
    *("keep_failed_days", "cron", "time_zone", "catch_up"),
)
TEMPTING: list[Any] = [
    *("invoices", "", " ", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"),
    *("* * * * *", "0 0 30 2 *", "America", "../x", "inbound", "one"),
    *("consumer", "x" * 201, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, 5e-324, -0.0, True, None, [], {}),
    *("\x00", "\ud800", "\U0001f600", "\u202e"),
]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(TEMPTING)
names = st.sampled_from(FIELDS) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)
likely = st.fixed_dictionaries(
    {"pipeline": st.just("invoices") | values, "payload": values, "reason": st.just("why") | values, "policy": values},
    optional={name: values for name in FIELDS if name not in {"pipeline", "payload", "reason", "policy"}},
)
bodies = (
    values.map(lambda value: json.dumps(value).encode())
    | likely.map(lambda value: json.dumps(value).encode())
    | likely.map(lambda value: json.dumps({"transactions": [value, value]}).encode())
    | st.dictionaries(st.sampled_from(FIELDS), values, max_size=4).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=50)
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "Idempotency-Key": st.text(st.characters(max_codepoint=255), max_size=5),
        "If-Match": st.sampled_from(['"1"', "1", "*", '"9"', ""]) | st.text(st.characters(max_codepoint=255)),
        "If-None-Match": st.sampled_from(["*", '"1"']),
    },
)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_body_is_a_fault_of_ours(odd: tuple[Client, DeadLetter], target: str, data: st.DataObject) -> None:
    api, letter = odd
    body, named = data.draw(bodies), data.draw(headers)
    address = address_of(target, letter)
    answer = api.post(address, body, content_type="application/json", headers=named)
    assert answer.status_code < 500, answer.content
    if answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert {"type", "title", "status", "detail", "code"} <= set(answer.json())


@pytest.fixture
def odd() -> tuple[Client, DeadLetter]:
    make_pipeline("invoices")
    letter = failed("bad")
    succeeded("good")
    return client_with(*SCOPES), letter


def address_of(target: str, letter: DeadLetter) -> str:
    return f"/api/v1/{target.replace('LETTER', str(letter.pk)).replace('GROUP', str(letter.group_id))}"


SENT = [
    *(b"", b"null", b"[]", b"5", b'"x"', b"{}", b"[" * 990 + b"]" * 990),
    b'{"reason": {"reason": 1}}',
    b'{"reason": "x", "payload": [1e999]}',
    b'{"reason": "x", "policy": {"loop": {"timeout": 1e999}}}',
    b'{"reason": "x", "policy": {"steps": {"fetch": {"extra": {"deep": [[[1e999]]]}}}}}',
    b'{"reason": "x", "policy": {"loop": {"limit": 1' + b"0" * 400 + b"}}}",
    b'{"reason": "x", "policy": ' + b'{"loop":' * 190 + b"5" + b"}" * 191,
]


@pytest.mark.parametrize("target", TARGETS)
def test_bodies_that_somebody_will_send(odd: tuple[Client, DeadLetter], target: str) -> None:
    api, letter = odd
    address = address_of(target, letter)
    for body in SENT:
        answer = api.post(address, body, content_type="application/json", headers={"If-Match": "*"})
        assert answer.status_code < 500, body
        assert answer.status_code < 400 or answer.headers["Content-Type"] == "application/problem+json", body
