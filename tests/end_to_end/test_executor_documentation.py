"""The examples of "Write handlers in another process" work as they stand on the page."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from engines import pipelines, transactions
from engines.models import DeadLetter
from tests.durable_transactions import consume
from tests.processes import ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

PAGE = ROOT / "docs" / "how-to" / "write-handlers-in-another-process.md"


def example(language: str) -> str:
    """The one block of code of a language."""
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(code)


def jobs() -> dict[str, Any]:
    """The payloads that the page submits, by id."""
    lines = re.findall(r'^\{"id".*\}$', PAGE.read_text(), re.MULTILINE)
    return {told["id"]: told["payload"] for told in map(json.loads, lines)}


def run(executors: dict[str, Any], *names: str, **variables: str) -> None:
    pipelines.create("greetings", pipelines.Plan(executor="python"), by="tests")
    for name in names:
        transactions.submit("greetings", jobs()[name], id=name)
    told = json.dumps(executors)
    assert consume("greetings", "--drain", ERGON_EXECUTORS=told, **variables).code == 0
    assert consume("greetings", "--drain", ERGON_EXECUTORS=told, **variables).code == 0


def test_the_handlers_in_python_run_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "shop_handlers.py").write_text(example("python").replace("after=15", "after=0"))
    command = [sys.executable, "-m", "engines.executors", "--handlers", "shop_handlers"]
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    run({"python": {"command": command, "pool_size": 2}}, "rates", "refused", PYTHONPATH=path)
    rates: Any = transactions.find("rates").result
    assert (rates["bank"], rates["attempt"]) == ("First Bank", 2)
    assert rates["seconds_left"] > 0
    assert DeadLetter.objects.get(uid="refused").message == "no such customer"


def test_the_executor_in_node_runs_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "executor.mjs").write_text(example("js").replace('"not yet", 2', '"not yet", 0'))
    run({"node": {"command": ["node", "executor.mjs"], "cwd": str(tmp_path)}, "python": {"command": ["cat"]}}, *NODE)
    assert [transactions.find(name).result for name in NODE] == [6, "write_handlers_elsewhere", "done at attempt 2"]


NODE = ("sum", "slug", "patient")
