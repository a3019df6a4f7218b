"""Who does not read on what a process says, a log shipper or a pager that is frozen, does not hold up its work."""

import fcntl
import json
import logging
import os
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from engines.management.commands import maintain
from ergon_site.access import unread
from ergon_site.access.unread import StderrHandler
from tests.commands import next_event
from tests.durable_transactions import consumer, count, make_policy, submit
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually

SUCCEEDED, FAILED = 2, 3
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


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stopped_by", [signal.SIGTERM, None], ids=["told to", "by itself"])
def test_a_consumer_whose_events_nobody_reads_works_on_and_ends(stopped_by: signal.Signals | None) -> None:
    pipeline = make_pipeline(task="tests.act")
    with consumer("orders", *([] if stopped_by else ["--limit", "3"])) as process:
        next_event(process, "waiting")  # and from now on nothing, until something happens
        fill(f"/proc/{process.pid}/fd/1")
        submit(pipeline, 3)
        eventually(lambda: count(SUCCEEDED) == 3, "it works on")
        if stopped_by:
            process.send_signal(stopped_by)
        assert process.wait(LIMIT) == 0


def fill(path: str) -> None:
    """Write to a pipe until it takes no more."""
    writing = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b" " * 4096)
    os.close(writing)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "PATIENCE", 0.01)


class Pipe:
    """A pipe with a handler at one end; it holds two pages."""

    def __init__(self, stack: ExitStack) -> None:
        self._reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 2 * 4096)
        stack.callback(os.close, self._reading)
        self.stream = stack.enter_context(os.fdopen(writing, "w"))
        self.handler = StderrHandler(self.stream)

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


@pytest.mark.django_db
@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    ("is_json", "first", "missing"),
    [
        (True, '{"event": "standing_by"', '"event": "left_out"'),
        (False, "standing by: x leads", "events left out, as nobody read them: "),
    ],
    ids=["JSON", "text"],
)
def test_services_go_on_while_nobody_reads_their_events(pipe: Pipe, *, is_json: bool, first: str, missing: str) -> None:
    service = maintain.Command(stdout=pipe.stream)
    service.is_json = is_json
    service.prepare(None)
    for _ in range(1000):
        service.tell_event("standing_by", leader="x")
    before = pipe.read().splitlines()
    assert 8 < len(before) < 1000
    assert all(first in line for line in before)
    service.tell_event("standing_by", leader="x")
    told, last = pipe.read().splitlines()[-2:]
    assert missing in told
    assert str(1000 - len(before)) in told
    assert first in last


@pytest.mark.once
def test_what_somebody_has_put_in_the_place_of_standard_error_is_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    handler = StderrHandler()
    handler.handle(logging.makeLogRecord({"msg": "seen"}))
    assert capsys.readouterr().err == "seen\n"
