"""The walks of docs/explanation/walks.md are those of real runs."""

import re
from typing import Any

import pytest
from django.test import Client

import tests.tasks  # noqa: F401 (the tasks of pipelines)
from engines.admin.transactions import TransactionsPage
from engines.drivers import timeouts
from engines.drivers.slots import ThreadSlots
from engines.models import TransactionRecord
from engines.transactions.statements import postgresql
from engines.worker.completer import Completer
from engines.worker.pipeline import Options
from engines.worker.process import WorkerProcess
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts.api.facts import FactsView
from facts.ledger import postgresql as ledger
from providers import ProviderBase
from tests.console import records
from tests.durable_transactions import submit
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import LIMIT, ROOT
from tests.providers.scripted_providers import Scripted
from tests.walks import walking

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]
PAGE = (ROOT / "docs/explanation/walks.md").read_text()
VALUES = set(re.findall(r"^- `(\S+)`: ", PAGE, re.MULTILINE))


def documented(title: str) -> list[str]:
    """The files of a walk, by the page."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `(\S+)`", section, re.MULTILINE)


def stops(files: list[str]) -> list[str]:
    """The files where something happens."""
    return [file for file in files if file not in VALUES and not file.endswith("__init__.py")]


def test_one_durable_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts.SpareThread, "idle", [])  # only threads that start from now on are followed
    pipeline = make_pipeline()
    # The completer also asks the database now and then whether it is there.
    firsts: dict[str, Any] = {
        "ergon-Act": ThreadSlots._serve,
        "ergon-completer": Completer._settle,
    }
    with (
        walking(firsts, postgresql.settle) as walk,
        WorkerProcess([pipeline], Options()) as worker,
    ):
        submit(pipeline)
        assert walk.is_over.wait(LIMIT)
        worker.stop()
    assert TransactionRecord.objects.get().finished_at
    assert stops(walk.files) == documented("One durable transaction")
    assert len(stops(walk.files)) <= 12


def test_one_posted_fact(client: Client) -> None:
    make_boundary()
    grant = Grant(scopes=["facts:append"], zones=[PLANT], target_zones=[OFFICE])
    headers = {"Authorization": f"Bearer {clients.create('press', grant, by='tests').token.text}"}
    for number in (1, 2):  # the first one finds out what is remembered then
        with walking({"": FactsView.post}, ledger.append) as walk:
            answer = client.post("/api/v1/facts", draft(number), content_type="application/json", headers=headers)
        assert answer.status_code == 201
    assert stops(walk.files) == documented("One POSTed fact")
    assert len(stops(walk.files)) <= 14


def test_one_provider_call() -> None:
    provider = Scripted({"rank": 1})
    for number in (1, 2):
        with walking({"": ProviderBase.execute}, ProviderBase.execute) as walk:
            assert provider.ask({"number": number}).ok
    assert stops(walk.files) == documented("One provider call")
    assert len(stops(walk.files)) <= 18


def test_one_click_on_replay(browse: Client) -> None:
    record = records.succeed(make_pipeline("orders"), {"n": 1}, id="first")
    with walking({"": TransactionsPage.replay}, postgresql.insert) as walk:
        dialog = {"_form_submitted": "on", "reason": "the bank is back"}
        browse.post(f"/admin/engines/transactionrecord/{record.pk}/replay/", dialog)
    assert TransactionRecord.objects.filter(replay_of=record.pk).exists()
    assert stops(walk.files) == documented("One click on Replay")
    assert len(stops(walk.files)) <= 12
