"""Items of lists that a pipeline hides are hidden on every page that shows a payload."""

import html
import json
from typing import Any

import pytest
from django.test import Client

from engines.models import DeadLetter, TransactionRecord
from tests.console import records
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

PAYLOAD = {
    "args": ["pin-4711", "open"],
    "lines": [{"sku": "a", "price": 3141592653}, {"sku": "b", "price": 9265358979}],
}
PATHS = ["args.0", "lines[].price"]
SECRETS = ("pin-4711", "3141592653", "9265358979")


@pytest.fixture
def letter() -> DeadLetter:
    return records.fail(make_pipeline("orders.import", redacted=PATHS), PAYLOAD)


def pages(letter: DeadLetter) -> list[str]:
    return [f"/admin/engines/transactionrecord/{letter.transaction_id}", f"/admin/engines/deadletter/{letter.pk}"]


def hides_all(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def editor(payload: Any, **more: str) -> dict[str, str]:
    return {"payload": json.dumps(payload), "reason": "asked for", "seen": "", "preview": "1", **more}


def test_pages_and_editors_hide_items_of_lists_until_they_are_revealed(browse: Client, letter: DeadLetter) -> None:
    for page in pages(letter):
        for place in ("change", "edit"):
            shown = records.read(browse, f"{page}/{place}/")
            assert hides_all(shown), place
            assert "open" in shown
        revealed = browse.post(f"{page}/reveal/").content.decode()
        assert all(secret in revealed for secret in SECRETS)


def test_an_edited_payload_gets_its_hidden_items_back_and_the_difference_does_not_show_them(
    browse: Client, letter: DeadLetter
) -> None:
    edited = {"args": ["•••", "shut"], "lines": [{"sku": "a", "price": "•••"}, {"sku": "c", "price": 1618033988}]}
    for page in pages(letter):
        shown = html.unescape(browse.post(f"{page}/edit/", editor(edited)).content.decode())
        difference = shown.split('id="difference"')[1]
        assert hides_all(difference)
        assert all(text in difference for text in ("args[1]", "shut", "lines[1].price"))
        assert "1618033988" not in difference
    seen = shown.split('name="seen" value="')[1].partition('"')[0]
    browse.post(f"{pages(letter)[1]}/edit/", editor(edited, seen=seen, send="1"))
    new = TransactionRecord.objects.get(replay_of=letter.transaction_id)
    whole = [{"sku": "a", "price": 3141592653}, {"sku": "c", "price": 1618033988}]
    assert new.payload == {"args": ["pin-4711", "shut"], "lines": whole}
    assert hides_all(records.read(browse, f"/admin/engines/transactionrecord/{new.pk}/change/"))


@pytest.mark.usefixtures("letter")
def test_the_search_finds_items_of_lists_that_are_not_hidden(browse: Client) -> None:
    def found(path: str, value: object) -> int:
        query = f"?q=payload.{path}:{value}"
        return len(records.exported(browse, f"/admin/engines/transactionrecord/export.json{query}"))

    assert found("args.1", "open") == 1
    for path, value in (("args.0", "pin-4711"), ("args.+0", "pin-4711"), ("lines.1.price", 9265358979)):
        assert found(path, value) == 0, path
