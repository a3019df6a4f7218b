"""Half of a surrogate pair in an id, a key or a name is refused in words, or names nothing: it is never a fault."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from engines import dead_letters, pipelines, policies, schedules, transactions
from engines.core.errors import EngineError
from engines.models import TransactionRecord
from engines.pipelines import Plan
from engines.reads import explain
from engines.transactions import Draft
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import artifacts, ledger, provisioning
from facts.core.errors import FactError
from providers import calls
from providers.calls import OrderError
from providers.core.errors import ProviderUsageError
from providers.core.exchange import Who
from providers.core.request import refuse_mistakes
from tests.commands import run
from tests.factories import make_pipeline
from tests.facts.drafts import draft, make_boundary

pytestmark = pytest.mark.django_db

HALF = "a\ud800"
DECISION: dict[str, Any] = {"by": "ada", "reason": "why"}
APPENDED = ("message_id", "correlation_id", "causation_id", "to_zone", HALF)
TEXTS = ("id", "dedupe_key", "correlation_id", "parent_id", "source")


def submission(**given: Any) -> Callable[[], Any]:
    return lambda: transactions.submit("orders", **{"payload": {}, **given})


def submissions(name: str) -> Callable[[], Any]:
    return lambda: transactions.submit_many("orders", [{"payload": 1}, {"payload": 1, name: HALF}])


def operation(verb: Callable[..., Any], place: str, **given: Any) -> Callable[[], Any]:
    who = Who("tenant", "provider", "capability")._replace(**{place: HALF})
    return lambda: verb(who, **given, **DECISION)


def fact(name: str) -> Callable[[], Any]:
    return lambda: ledger.append(draft(**{name: HALF}))


REFUSED: dict[str, Callable[[], Any]] = {
    **{name: submission(**{name: HALF}) for name in TEXTS},
    **{f"{name} of many": submissions(name) for name in TEXTS},
    "payload": submission(payload=HALF),
    "value in a payload": submission(payload={"a": [HALF]}),
    "name in a payload": submission(payload={HALF: 1}),
    "payload with a long number": submission(payload={"a": 2**70, "b": HALF}),
    "value in metadata": submission(metadata={"a": HALF}),
    "name in metadata": submission(metadata={HALF: 1}),
    "value in a trace context": submission(trace_context={"traceparent": HALF}),
    "name in a trace context": submission(trace_context={HALF: "a"}),
    "check": lambda: transactions.check([Draft(1, id=HALF)]),
    "submit to a pipeline": lambda: transactions.submit(HALF, {}),
    "submit to pipelines": lambda: transactions.submit_together([("orders", Draft(1)), (HALF, Draft(1))]),
    "find": lambda: transactions.find(HALF),
    "cancel": lambda: transactions.cancel(HALF, **DECISION),
    "replay": lambda: transactions.replay(HALF, **DECISION),
    "reveal": lambda: transactions.reveal(HALF, by="ada"),
    "explain": lambda: explain.explain(HALF),
    "find a dead letter": lambda: dead_letters.find(HALF),
    "make a pipeline": lambda: pipelines.create(HALF, Plan(task="t"), by="ada"),
    "make a pipeline with a task": lambda: pipelines.create("new", Plan(task=HALF), by="ada"),
    "make a pipeline with an executor": lambda: pipelines.create("new", Plan(executor=HALF), by="ada"),
    "make a pipeline with a connector": lambda: pipelines.create("new", Plan(task="t", connector=HALF), by="ada"),
    "make a pipeline with a policy": lambda: pipelines.create("new", Plan(task="t", policy=HALF), by="ada"),
    "make a pipeline that hides": lambda: pipelines.create("new", Plan(task="t", redacted=[HALF]), by="ada"),
    "find a pipeline": lambda: pipelines.find(HALF),
    "pause a pipeline": lambda: pipelines.pause(HALF, **DECISION),
    "make a schedule": lambda: schedules.create(HALF, schedules.Plan(pipeline="orders", cron="* * * * *"), by="ada"),
    "schedule a payload": lambda: schedules.create(
        "new", schedules.Plan(pipeline="orders", cron="* * * * *", payload=HALF), by="ada"
    ),
    "find a schedule": lambda: schedules.find(HALF),
    "pause a schedule": lambda: schedules.pause(HALF, **DECISION),
    "write a policy": lambda: policies.write(HALF, {}, kind="consumer", **DECISION),
    "find a policy": lambda: policies.find(HALF),
    **{f"set the quota of a {place}": operation(calls.set_quota, place, limit=1, window=1.0) for place in Who._fields},
    **{f"reset the breaker of a {place}": operation(calls.reset, place) for place in Who._fields},
    "force a breaker open": operation(calls.force_open, "provider_name"),
    "call under a key": lambda: refuse_mistakes({"idempotency_key": HALF}),
    "make a zone": lambda: provisioning.create_zone(HALF, by="ada"),
    "make a boundary": lambda: provisioning.create_boundary(HALF, "Enterprise", by="ada"),
    "make a consumer": lambda: provisioning.create_consumer(HALF, "Plant A", "Enterprise", by="ada"),
    "close a gate": lambda: provisioning.close_gate(HALF, "Enterprise", **DECISION),
    **{f"append a fact with a {name!a}": fact(name) for name in APPENDED},
    "append a label": lambda: ledger.append(draft(labels={HALF: "a"})),
    "append an object": lambda: ledger.append(draft(object_json={"a": HALF})),
    "look up a fact": lambda: ledger.look_up(HALF, "Plant A", "Enterprise"),
    "look up a boundary": lambda: ledger.look_up("a", "Plant A", HALF),
    "fetch": lambda: ledger.fetch(HALF),
    "confirm": lambda: ledger.confirm(HALF, 1),
    "put an artifact": lambda: artifacts.put("abc", HALF, io.BytesIO(b"x"), by="ada"),
    "make a client": lambda: clients.create(HALF, Grant(scopes=["platform"]), by="ada"),
    "grant a zone": lambda: clients.create("new", Grant(zones=[HALF]), by="ada"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_half_a_character_is_refused_in_words(name: str) -> None:
    make_pipeline()
    make_boundary()
    with pytest.raises((EngineError, FactError, OrderError, ProviderUsageError, ValueError)) as refusal:
        REFUSED[name]()
    assert not isinstance(refusal.value, UnicodeError)
    assert "codec" not in str(refusal.value)
    str(refusal.value).encode()  # it can be told to anybody
    assert not TransactionRecord.objects.exists()


def test_the_refusal_names_the_field() -> None:
    make_pipeline()
    with pytest.raises(
        transactions.SubmissionError, match="id must be a text without U\\+0000 and halves of"
    ) as refusal:
        transactions.submit("orders", 1, id=HALF)
    assert refusal.value.field == "id"
    with pytest.raises(transactions.SubmissionError, match="the payload is not JSON: a text holds half of a surrogate"):
        transactions.submit("orders", HALF)


@pytest.mark.parametrize("field", ["id", "dedupe_key", "correlation_id", "payload", "metadata", "pipeline"])
def test_over_http_it_is_a_bad_request(field: str, client: Client, token: str) -> None:
    make_pipeline()
    value: Any = {"metadata": {"a": HALF}}.get(field, HALF)
    body = json.dumps({"pipeline": "orders", "payload": 1, field: value})
    headers = {"Authorization": f"Bearer {token}"}
    answer = client.post("/api/v1/transactions", body, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert "half of a surrogate pair" in answer.json()["detail"]


@pytest.mark.parametrize(
    "arguments", [("explain", HALF), ("cancel", HALF, "--reason", "x"), ("pause", HALF, "--reason", "x")]
)
def test_a_command_says_it_in_one_line(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="there is no"):
        run(*arguments)
