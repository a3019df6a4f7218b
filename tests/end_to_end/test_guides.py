"""Every console and Python block of README, tutorials and how-tos works as it is written, from a fresh clone."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clone import clone, installed
from tests.guides import COMMENT, COMMENTS, Reader, blocks, page_before
from tests.processes import ROOT, free_port

pytestmark = pytest.mark.once

DOCS = ROOT / "docs"
HOW_TO = DOCS / "how-to"
PAGES = {ROOT / "README.md", *DOCS.glob("tutorial/*.md"), *HOW_TO.rglob("*.md")}
# Another project, or a PostgreSQL database with a past: tests of their own follow these pages.
FOLLOWED = {page: found[1] for page in PAGES if (found := re.search("<!-- followed by: (.+) -->", page.read_text()))}
# Of the page on deployments.
DATABASE = "postgresql://ergon:PASSWORD@db.example:5432/ergon?sslmode=require"
# Of the view on the front page.
A_REQUEST = """
from django.test import RequestFactory
print(order(RequestFactory().post("/", {"quantity": 2})).status_code)
"""
(PREPARING,) = (block.text for block in blocks(DOCS / "README.md"))


def journey(page: Path) -> list[Path]:
    """A page, after those that it goes on from."""
    before = page_before(page)
    return [*journey(before), page] if before else [page]


# The others are on the way to one of these, or have nothing to run.
ENDS = sorted(
    page
    for page in PAGES - {page_before(page) for page in PAGES} - FOLLOWED.keys()
    if any(block.language in {"console", "python"} and "not run" not in block.comments for block in blocks(page))
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A clone for all pages: to load its code takes seconds."""
    copy = clone(tmp_path_factory.mktemp("guides"))
    with installed(copy):
        yield copy


@pytest.fixture
def reader(copy: Path) -> Iterator[Reader]:
    """A reader in the clone, without data of any page."""
    files = set(copy.iterdir())
    ports = {number: str(free_port()) for number in ("8000", "8001", "8099")}
    broker = os.environ["CELERY_BROKER_URL"].removeprefix("redis://")
    data = copy.parent / "data"
    places = {DATABASE: f"sqlite:///{data}/ergon.sqlite3", "var/lib/ergon-data": str(data).lstrip("/")}
    with Reader(copy, {**ports, **places, "127.0.0.1:6379/0": broker}) as reader:
        yield reader
    for path in {*copy.iterdir(), *copy.parent.iterdir()} - files - {copy}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("page", ENDS, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_work_as_written(page: Path, reader: Reader) -> None:
    pages = journey(page)
    if pages[0].parent == HOW_TO:
        reader.here.run(PREPARING)
    for one in pages:
        reader.follow(one)
    if page.stem == "README":
        assert "202" in reader.execute(A_REQUEST)


def test_every_comment_that_a_page_has_for_this_test_is_one_that_it_knows() -> None:
    assert [
        (page.name, comment[0])
        for page in sorted(PAGES)
        for comment in COMMENT.finditer(page.read_text())
        if comment["name"] not in COMMENTS
    ] == []


def test_every_block_of_a_page_is_found() -> None:
    assert [
        page.name
        for page in sorted(PAGES)
        if len(re.findall(r"^ *```(?:console|python)$", page.read_text(), re.MULTILINE))
        != sum(block.language in {"console", "python"} for block in blocks(page))
    ] == []


def test_every_test_that_a_page_names_is_there_and_one_that_follows_it_reads_it() -> None:
    reasons = [(page, block.comments.get("not run", "")) for page in PAGES for block in blocks(page)]
    named = {(page, name) for page, reason in reasons for name in re.findall(r"tests/[\w/]+(?:\.py)?", reason)}
    assert [(page.name, name) for page, name in sorted(named) if not (ROOT / name).exists()] == []
    assert [page.name for page, name in FOLLOWED.items() if page.name not in (ROOT / name).read_text()] == []


def test_a_page_that_has_nothing_to_run_says_of_each_block_why() -> None:
    assert [
        (page.name, block.text)
        for page in sorted(PAGES - FOLLOWED.keys() - set().union(*map(journey, ENDS)))
        for block in blocks(page)
        if block.language in {"console", "python"} and len(block.comments.get("not run", "").split()) < 2
    ] == []
