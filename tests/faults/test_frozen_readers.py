"""Who does not read on what a process says, a log shipper or a pager that is frozen, does not hold up its work."""

import fcntl
import json
import logging
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ergon_site import stderr
from ergon_site.stderr import StderrHandler
from tests.durable_transactions import consumer, count, make_policy, submit
from tests.factories import make_pipeline
from tests.processes import LIMIT

FAILED = 3
MANY = 400  # lines that are more than a pipe holds


@pytest.mark.django_db(transaction=True)
def test_a_consumer_whose_log_nobody_reads_works_on_and_ends() -> None:
    once = make_policy("once", {"steps": {"process": {"retry": {"max_attempts": 1}}}})
    submit(make_pipeline(task="tests.act", policy=once), MANY, fail="x" * 200)
    with consumer("orders", "--drain", ERGON_LEASE_SECONDS="60") as process:
        assert process.wait(LIMIT) == 0
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert count(FAILED) == MANY
    assert 0 < len(lines) < MANY
    assert all(json.loads(line)["event"] for line in lines[:-1])


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stderr, "PATIENCE", 0.01)


class Pipe:
    """A pipe with a handler at one end; it holds two pages."""

    def __init__(self, stack: ExitStack) -> None:
        self._reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 2 * 4096)
        stack.callback(os.close, self._reading)
        self.handler = StderrHandler(stack.enter_context(os.fdopen(writing, "w")))

    def log(self, text: str) -> None:
        self.handler.handle(logging.makeLogRecord({"msg": text}))

    def read(self) -> str:
        said = b""
        while select.select([self._reading], [], [], 0)[0]:
            said += os.read(self._reading, 4096)
        return said.decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with ExitStack() as stack:
        yield Pipe(stack)


@pytest.mark.once
@pytest.mark.usefixtures("_impatient")
def test_lines_that_nobody_reads_are_left_out_and_counted(pipe: Pipe) -> None:
    for number in range(100):
        pipe.log(f"{number} {'x' * 500}")
    kept = pipe.read().splitlines()
    assert 8 < len(kept) < 100
    assert [line.split()[0] for line in kept] == [str(number) for number in range(len(kept))]
    pipe.log("again")
    assert pipe.read().splitlines() == [f"log lines left out, as nobody read them: {100 - len(kept)}", "again"]
    pipe.log("and on")
    assert pipe.read() == "and on\n"


@pytest.mark.once
@pytest.mark.usefixtures("_impatient")
def test_a_line_that_was_begun_is_ended_before_the_next(pipe: Pipe) -> None:
    pipe.log("ä" * 20_000)
    begun = pipe.read()
    assert set(begun) == {"ä"}
    pipe.log("again")
    assert pipe.read().splitlines() == ["", "log lines left out, as nobody read them: 1", "again"]


@pytest.mark.once
def test_only_the_first_line_waits_for_a_reader_that_has_stopped(pipe: Pipe) -> None:
    """If each of them did, this would take an hour."""
    for _ in range(3600):
        pipe.log("x" * 4000)
    assert pipe.read().strip("x\n") == ""
    pipe.log("again")
    *_, told, last = pipe.read().splitlines()
    assert 3500 < int(told.removeprefix("log lines left out, as nobody read them: ")) < 3600
    assert last == "again"


@pytest.mark.once
def test_what_somebody_has_put_in_the_place_of_standard_error_is_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    handler = StderrHandler()
    handler.handle(logging.makeLogRecord({"msg": "seen"}))
    assert capsys.readouterr().err == "seen\n"
