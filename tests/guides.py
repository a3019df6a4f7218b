"""Follows a page of the documentation: saves its files, types its commands, compares what they print."""

import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any, Self

from tests.processes import LIMIT, ROOT, eventually, wait_for

BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
# What a page tells the test and not its reader; CONTRIBUTING.md lists them.
COMMENT = re.compile(r"<!-- (?P<name>[\w -]+?)(?:: (?P<value>.+?))? -->", re.DOTALL)
COMMENTS = {
    "after",
    "followed by",
    "not run",
    "terminal",
    "until Ctrl-C",
    "Ctrl-C in",
    "Ctrl-C after this in",
    "eventually",
    "change in",
}
# What differs from run to run: times, durations, ids, hosts and process numbers.
VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?", "TIME"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\b[\w-]+:\d{2,}\b", "HOST:PID"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "DURATION"),
    # A fraction may end early: of ten thousand times that are left, one is 29.55.
    (r'(?<="seconds_left": )\d+(\.\d+)?', "NUMBER"),
    (r"\d+ migrations?", "MIGRATIONS"),
    (r"(/[\w.+-]+){3,}", "PATH"),
)


@dataclass(frozen=True)
class Block:
    """A block of code on a page, and the paragraph and the comments before it."""

    language: str
    text: str
    before: str
    comments: Mapping[str, str]

    @property
    def saved_as(self) -> str | None:
        """The file that the reader is told to save the block as."""
        found = re.search(r"(?:[Ss]ave|[Ww]rite)\b[^.`]* as `([^`]+)`", self.before)
        return found[1] if found else None


def blocks(page: Path, changes: Mapping[str, str] | None = None) -> list[Block]:
    """The blocks of a page in their order, with other addresses where those of the page may be taken."""
    text = page.read_text()
    for written, instead in (changes or {}).items():
        text = re.sub(rf"\b{re.escape(written)}\b", instead, text)
    found, end = [], 0
    for match in BLOCK.finditer(text):
        before = text[end : match.start()].strip()
        last = before.rpartition("\n\n")[2]
        comments = {one["name"]: " ".join((one["value"] or "").split()) for one in COMMENT.finditer(last)}
        if last.startswith("<!--"):
            last = COMMENT.sub("", before).strip().rpartition("\n\n")[2]
        found.append(Block(match["language"], dedent(match["text"]), " ".join(last.split()), comments))
        end = match.end()
    return found


def page_before(page: Path) -> Path | None:
    """The page that this one goes on from."""
    found = re.search(r"^<!-- after: (\S+) -->$", page.read_text(), re.MULTILINE)
    return ROOT / "docs" / found[1] if found else None


@dataclass
class Terminal:
    """A shell in a folder. Its commands see no variable of the tests."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", **self.variables}
        self._shell = subprocess.Popen(
            ["/bin/bash", "--norc"],
            cwd=self.folder,
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._count = 0
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, commands: str) -> str:
        """Type the commands and wait for their end; each must succeed. What they print."""
        self._count += 1
        mark = f"ended-{self._count}"
        self.begin(f"set -e\n{commands.rstrip()}\nset +e\necho\necho {mark}")
        return self._until(mark)

    def begin(self, commands: str) -> None:
        """Type commands that go on until they are interrupted."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{commands}\n")
        self._shell.stdin.flush()

    def type(self, commands: str, until: str) -> str:
        """Type commands and wait until this is printed; what was printed before."""
        self.begin(commands)
        return self._until(until)

    def press_ctrl_c(self, until: str | None = None) -> str:
        """Interrupt what runs here, as soon as it has printed this, and return all that it printed."""
        printed = self._until(until) if until else ""
        os.killpg(self._shell.pid, signal.SIGINT)
        return printed + self.run("")

    def close(self) -> None:
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.communicate(timeout=LIMIT)

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _until(self, mark: str) -> str:
        printed, limit = "", time.monotonic() + 2 * LIMIT
        while True:
            try:
                line = self._lines.get(timeout=limit - time.monotonic())
            except (queue.Empty, ValueError):
                msg = f"not ended in time:\n{printed}"
                raise AssertionError(msg) from None
            assert line, f"a command of the page failed:\n{printed}"
            if line.rstrip("\n") == mark:
                return printed
            printed += line
            if mark in line:
                return printed


# Executes blocks of Python in one namespace: their files come through a pipe.
SESSION = """
import sys, traceback
names = {{"__name__": "page"}}
for line in open({pipe!r}):
    path, mark = line.split()
    try:
        exec(compile(open(path).read(), path, "exec"), names)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        print("FAILED", end=" ")
    print("", mark, sep=chr(10), flush=True)
"""


class Session:
    """Python in a terminal, for the blocks that are saved nowhere."""

    def __init__(self, terminal: Terminal, folder: Path) -> None:
        self._terminal, self._folder, self._count = terminal, folder, 0
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        (folder / "session.py").write_text(SESSION.format(pipe=str(pipe)))
        # In a shell of its own, so that `$!` stays what the page has started.
        python = ".venv/bin/python"  # the page may not have activated it yet
        terminal.run(
            f"({python} manage.py shell -c \"exec(open('{folder}/session.py').read(), {{}})\" &)\nexec 7<> {pipe}"
        )

    def execute(self, code: str) -> str:
        """Execute a block; what it prints."""
        self._count += 1
        path = self._folder / f"block-{self._count}.py"
        path.write_text(code)
        printed = self._terminal.type(f"echo {path} executed-{self._count} >&7", until=f"executed-{self._count}")
        assert "FAILED" not in printed, f"a block of the page failed:\n{code}\n{printed}"
        return printed


class Reader:
    """Follows pages in one folder, as a person does: types, saves, compares, presses Ctrl-C."""

    def __init__(self, folder: Path, changes: Mapping[str, str]) -> None:
        self.folder, self._changes = folder, changes
        self._terminals: dict[str, Terminal] = {}
        self._busy: set[str] = set()
        self.here = self.terminal("first")
        self.session: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in self._terminals.values():
            terminal.close()

    def terminal(self, name: str) -> Terminal:
        if name not in self._terminals:
            self._terminals[name] = Terminal(self.folder)
        return self._terminals[name]

    def follow(self, page: Path) -> None:
        """Go through a page from its first block to its last."""
        self.here, self.session, printed = self.terminal("first"), None, None
        steps = blocks(page, self._changes)
        for number, block in enumerate(steps):
            assert block.comments.keys() <= COMMENTS, f"{page.name}: {block.comments}"
            expected = steps[number + 1].text if number + 1 < len(steps) else ""
            printed = self._take(block, printed, expected)
        for name in self._busy:
            self.terminal(name).press_ctrl_c()
        self._busy.clear()

    def execute(self, code: str) -> str:
        """Execute a block of Python with the names of those before it on the page."""
        if self.session is None:
            self.session = Session(self.here, Path(tempfile.mkdtemp(dir=self.folder.parent)))
        return self.session.execute(code)

    def _take(self, block: Block, printed: str | None, expected: str) -> str | None:
        """Do what the page says with a block; what that printed."""
        comments = block.comments
        if "terminal" in comments:
            self.here = self.terminal(comments["terminal"])
        match block.language:
            case _ if "not run" in comments:
                assert len(comments["not run"].split()) > 1, "a reason is missing"
                return None
            case _ if "change in" in comments:
                change(self.folder / comments["change in"], block.text)
            case _ if block.saved_as:
                save(self.folder, block)
            case "console" if "until Ctrl-C" in comments:
                self._begin(block.text, comments["until Ctrl-C"])
            case "console" if "eventually" in comments:
                eventually(lambda: prints(self.here.run(block.text), expected), expected)
                return self.here.run(block.text)
            case "console":
                return self.here.run(block.text)
            case "python":
                return self.execute(block.text)
            case "text":
                assert_prints(self._interrupted(block) if is_interrupted(block) else printed or "", block.text)
            case "json" if printed:
                assert_answers(printed, block.text)
        return None

    def _begin(self, commands: str, address: str) -> None:
        self.here.begin(commands)
        self._busy.add(next(name for name, one in self._terminals.items() if one is self.here))
        if address:
            wait_for(address)

    def _interrupted(self, block: Block) -> str:
        until = "Ctrl-C after this in" in block.comments
        name = block.comments["Ctrl-C after this in" if until else "Ctrl-C in"]
        self._busy.remove(name)
        return self.terminal(name).press_ctrl_c(until=block.text.split()[-1] if until else None)


def is_interrupted(block: Block) -> bool:
    return any(name.startswith("Ctrl-C") for name in block.comments)


def save(folder: Path, block: Block) -> None:
    """Save a block as the file that the page names."""
    assert block.saved_as is not None
    path = folder / block.saved_as
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)


def change(path: Path, line: str) -> None:
    """Replace an assignment of a module."""
    name = line.partition(" ")[0]
    text, count = re.subn(rf"^{name} = .*\n", line, path.read_text(), flags=re.MULTILINE)
    assert count == 1, f"{path} assigns {name} {count} times"
    path.write_text(text)


def assert_prints(printed: str, expected: str) -> None:
    """The lines of the page come in this order among those printed, but for times, ids and hosts."""
    assert prints(printed, expected), f"the page says:\n{expected}\nbut the command printed:\n{printed}"


def prints(printed: str, expected: str) -> bool:
    left = iter(_plain(printed.splitlines()))
    return all(line in left for line in _plain(expected.splitlines()))


def assert_answers(printed: str, expected: str) -> None:
    """The last answer that was printed has the fields that the page shows."""
    # A server's answer does not end with a line: the next one comes right after it.
    *_, last = printed.strip().replace("}{", "}\n{").splitlines()
    assert last.startswith("{"), f"the page shows an answer:\n{expected}\nbut the command printed:\n{printed}"
    assert _fields(json.loads(last)) == _fields(json.loads(expected)), f"{last}\nis not\n{expected}"


def _fields(value: Any) -> Any:
    match value:
        case dict():
            return {name: _fields(one) for name, one in value.items()}
        case list():
            return [_fields(one) for one in value]
    return None


def _plain(lines: Iterable[str]) -> list[str]:
    return [_without_varying(line) for line in lines if line.strip()]


def _without_varying(line: str) -> str:
    for pattern, name in VARYING:
        line = re.sub(pattern, name, line)
    return " ".join(line.split())
