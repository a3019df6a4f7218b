"""What a type checker says of an author's code: the tasks of the documentation, and mistakes in one."""

import os
import re
import subprocess
import sys

import pytest

from tests.guides import blocks
from tests.processes import LIMIT, ROOT

pytestmark = pytest.mark.once

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", DOCS / "tutorial/first-task.md", DOCS / "tutorial/first-pipeline.md")
TYPED = DOCS / "how-to/write-a-task.md"
MISTAKES = """
from engines import ConsumerTask, Transaction
from engines.connectors.memory import MemoryConnector


class Ledger:
    def book(self, total: int) -> str:
        return str(total)


class BookInvoice(ConsumerTask):
    ledger_service: Ledger
    inbox_connector: MemoryConnector

    def process_transaction(self, transaction: Transaction) -> str:
        self.ledgr_service.book(1)  # attr-defined
        self.ledger_service.book("1")  # arg-type
        self.inbox_connector.fetch(1)  # attr-defined
        return self.ledger_service.book(1)


BookInvoice(connectors={"inbox": "inbox"})  # dict-item
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The checker's lines about the code of the pages and about the one with mistakes."""
    folder = tmp_path_factory.mktemp("author")
    code = [block.text for page in PAGES for block in blocks(page) if block.language == "python"]
    code += [block.text for block in blocks(TYPED) if "Protocol" in block.text]
    for number, text in enumerate(code):
        if "import" in text:
            (folder / f"page_{number}.py").write_text(text)
    (folder / "mistakes.py").write_text(MISTAKES)
    # As an author calls it, with no settings of this project's. Of what is installed a checker tells nothing either.
    options = [
        "--config-file=",
        "--follow-imports=silent",
        "--check-untyped-defs",
        f"--cache-dir={ROOT / '.mypy_cache' / 'authors'}",
    ]
    command = [sys.executable, "-m", "mypy", *options, "--no-error-summary", *sorted(map(str, folder.glob("*.py")))]
    env = {"PATH": os.environ["PATH"], "MYPYPATH": str(ROOT)}
    told = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=2 * LIMIT, check=False)
    assert not told.stderr
    return told.stdout.splitlines()


def test_tasks_of_the_documentation_type_check(checked: list[str]) -> None:
    assert [line for line in checked if line.startswith("page_")] == []


def test_mistakes_with_services_and_connectors_are_found(checked: list[str]) -> None:
    found = [re.fullmatch(r"mistakes\.py:(\d+): error: .*\[([\w-]+)\]", line) for line in checked]
    expected = [
        (number, code) for number, line in enumerate(MISTAKES.splitlines(), 1) for code in re.findall(r"# (.*)", line)
    ]
    assert [(int(one[1]), one[2]) for one in found if one] == expected


def test_nothing_is_said_of_ergon_itself(checked: list[str]) -> None:
    assert [line for line in checked if not line.startswith(("page_", "mistakes"))] == []
