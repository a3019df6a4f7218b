"""The pages of the documentation that a reader follows step by step work as they are written, from a fresh clone."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides import Block, Terminal, assert_prints, blocks, clone, installed, save, terminals
from tests.processes import eventually, free_port

pytestmark = pytest.mark.once


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The fresh clone that the reader stands in."""
    copy = clone(tmp_path)
    with installed(copy):
        yield copy


def test_the_tutorial_on_the_first_pipeline_works_as_written(folder: Path) -> None:
    with terminals(folder, "first", "second") as (first, second):
        here, printed, is_waiting = first, "", False
        for block in blocks("tutorial/first-pipeline.md"):
            if block.language in {"python", "json"}:
                edit(folder, block.text) if block.saved_as is None else save(folder, block)
            elif block.language == "text" and "Ctrl-C" in block.before:
                assert_prints(first.press_ctrl_c(), block.text)
            elif block.language == "text" and is_waiting:
                eventually(lambda: "failed" in second.run("python manage.py explain invoice-4"), "the consumer ran it")
                assert_prints(second.run("python manage.py explain invoice-4"), block.text)
            elif block.language == "text":
                assert_prints(printed, block.text)
            elif block.text == "python manage.py consume\n":
                first.begin(block.text)
                here = second
            elif "pip install" not in block.text:  # a fresh clone here has its packages
                is_waiting = "A moment later" in block.before
                printed = here.run(block.text)


def follow(folder: Path, terminal: Terminal, steps: list[Block]) -> None:
    """Go through the blocks of a page with one terminal."""
    printed = ""
    for block in steps:
        match block.language:
            case "console":
                printed = terminal.run(block.text)
            case "text":
                assert_prints(printed, block.text)
            case _ if block.saved_as:
                save(folder, block)
            case _:
                assert "Add to the file" in block.before
                with (folder / "../shop/shop_tasks.py").open("a") as file:
                    file.write(f"\n\n{block.text}")


def test_the_pages_on_providers_work_as_written(folder: Path) -> None:
    changes = {"8099": str(free_port()), "kill $!": ""}  # the second page goes on with the first one's server
    with terminals(folder, "shell") as shell:
        follow(folder, shell, blocks("how-to/write-a-provider.md", changes))
        follow(folder, shell, blocks("how-to/call-a-provider-from-a-task.md", changes))


def test_the_page_for_users_of_tenacity_and_pybreaker_works_as_written(folder: Path) -> None:
    before, *steps = blocks("how-to/from-tenacity-and-pybreaker.md", {"8099": str(free_port())})
    compile(before.text, "before.py", "exec")  # what the reader has today needs packages that are not ours
    with terminals(folder, "shell") as shell:
        follow(folder, shell, steps)


def test_the_page_on_facts_works_as_written(folder: Path) -> None:
    changes = {"8000": str(free_port()), "8001": str(free_port())}
    with terminals(folder, "plant", "office") as (plant, office):
        printed, is_running = "", False
        for block in blocks("how-to/produce-and-consume-facts.md", changes):
            here = plant if "plant's terminal" in block.before else office
            if block.language == "text" and is_running:
                assert_prints(office.press_ctrl_c(until="sheet.pdf"), block.text)
                is_running = False
            elif block.language == "text":
                assert_prints(printed, block.text)
            elif block.saved_as:
                save(folder, block)
            elif "until Ctrl-C" in block.before:
                office.begin(block.text)
                is_running = True
            elif block.language == "console":
                assert "terminal" in block.before, f"where to type this is not said:\n{block.text}"
                printed = here.run(block.text)
                if "and" in block.before.partition("plant's terminal")[2]:
                    office.run(block.text)


def edit(folder: Path, line: str) -> None:
    """Change the one line of the task that the page shows changed."""
    path = folder / "../first-pipeline/shop_tasks.py"
    name = line.partition(" ")[0]
    path.write_text(re.sub(rf"^{name} = .*\n", line, path.read_text(), flags=re.MULTILINE))
