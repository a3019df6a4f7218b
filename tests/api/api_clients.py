"""What the tests of the engines' API stand on: a pipeline, clients, and transactions that have ended."""

from typing import Any

from django.test import Client

from engines import pipelines, transactions
from engines.core.errors import ExceptionType, TransactionException
from engines.core.outcome import Failure, Outcome, Success
from engines.models import DeadLetter
from engines.transactions import Settlement
from ergon_site.access import clients
from ergon_site.access.clients import Grant


def client_with(*scopes: str, name: str = "erp") -> Client:
    token = clients.create(name, Grant(scopes=scopes), by="tests").token.text
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


def post(api: Client, address: str, body: Any, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.post(f"/api/v1/{address}", body, content_type="application/json", headers=named)


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:ergon:problem:{code}")
    return body


def pointers(body: dict[str, Any]) -> list[str]:
    return [error["pointer"] for error in body["errors"]]


def run(uid: str, outcome: Outcome, pipeline: str = "invoices") -> None:
    """Let the one waiting transaction end so."""
    leased = transactions.claim(pipelines.find(pipeline).pk, 1, worker=1)
    assert [one.id for one in leased] == [uid]
    transactions.settle([Settlement(leased[0], outcome)])


def succeeded(uid: str, result: Any = None) -> None:
    transactions.submit("invoices", {"n": 1}, id=uid)
    run(uid, Success(result))


def failed(uid: str, message: str = "no such customer") -> DeadLetter:
    transactions.submit("invoices", {"n": 1}, id=uid, correlation_id="order-7")
    run(uid, Failure(TransactionException(message, ExceptionType.BUSINESS)))
    return DeadLetter.objects.get(uid=uid)
