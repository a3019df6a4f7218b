"""Answers have the fields that the documentation shows."""

import json
import re
from typing import Any

import pytest
from django.test import Client

from tests.processes import ROOT

pytestmark = pytest.mark.django_db


def examples(page: str) -> list[dict[str, Any]]:
    """The JSON documents on a page below `docs/`."""
    text = (ROOT / "docs" / page).read_text()
    return [json.loads(block) for block in re.findall(r"^```json\n(\{.*?\})\n```$", text, re.MULTILINE | re.DOTALL)]


def test_the_page_on_clients_shows_the_answers_that_come(client: Client, token: str) -> None:
    known, unknown = examples("how-to/api-clients.md")[:2]
    answer = client.get("/api/v1/client", headers={"Authorization": f"Bearer {token}"}).json()
    assert list(answer) == list(known)
    assert {name: type(value) for name, value in answer.items() if value is not None} == {
        name: type(value) for name, value in known.items() if value is not None and answer[name] is not None
    }
    assert client.get("/api/v1/client").json() == unknown


def test_the_reference_names_every_field_of_a_client(client: Client, token: str) -> None:
    (row,) = re.findall(r"^\| `GET /api/v1/client` .*$", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE)
    answer = client.get("/api/v1/client", headers={"Authorization": f"Bearer {token}"}).json()
    assert [name for name in answer if f"`{name}`" not in row] == []
