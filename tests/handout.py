"""Hands out the modules of the suite among processes that run side by side: each is run by the first that asks for it.

A module belongs to the process that has made the file of its name, which only one can. It loads the module, runs it and
writes the number of its tests into the file. So none loads what another runs, and none is idle while another still has
much to do.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import collect_one_node

# What takes long comes first: else it would be taken last, and be waited for by all. It waits more than it computes,
# so the passes on PostgreSQL, which have less to do, begin at the other end and use the processors meanwhile.
FOLDERS = ("faults", "conformance", "executors", "providers", "end_to_end", "engines", "facts", "console")

# To start a RabbitMQ or a browser costs more than most tests with it: one process runs them all, before anything else.
ON_RABBITMQ = {
    *("test_broker.py", "test_brokers.py", "test_outbox.py", "test_provider_task_wrapper.py", "test_silent_brokers.py"),
}
GROUPS = ("rabbitmq", "browser")

Node = pytest.Item | pytest.Collector


class Handout:
    """The plugin of one such process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: list[Node] = []
        self._has: dict[str, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Find the modules, but load none before it is ours."""
        session.perform_collect(genitems=False)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[Node]) -> Generator[None]:
        """What is found at first are folders and modules, from which nobody else shall choose."""
        if not self._modules:
            found = [module for node in items for module in _modules(session, node)]
            sign = 1 if session.config.getoption("--database") == "sqlite" else -1
            self._modules = sorted(
                found,
                key=lambda node: (_turn(node), sign * _rank(node.path.parent.name), node.path),
            )
            items.clear()
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """As pytest's own, for the modules that are ours."""
        ours = self._take(session)
        item = next(ours, None)
        while item is not None:
            following = next(ours, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        session.testscollected = len(session.items)
        return True

    def _take(self, session: pytest.Session) -> Iterator[pytest.Item]:
        for module in self._modules:
            taken = self._folder / module.nodeid.replace("/", ".")
            if not self._is_ours(module) or not _is_made(taken):
                continue
            items = list(session.genitems(module))
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
            session.items += items  # from which the databases are known that must be made
            yield from items
            taken.write_text(str(len(items)))

    def _is_ours(self, module: Node) -> bool:
        """Whether it is free to take, or is of a group that this process was the first to ask for."""
        group = _group(module)
        if group and group not in self._has:
            self._has[group] = _is_made(self._folder / group, "taken")
        return not group or self._has[group]


def _group(module: Node) -> str | None:
    if module.path.name in ON_RABBITMQ:
        return "rabbitmq"
    return "browser" if module.path.parent.name == "browser" else None


def _turn(module: Node) -> int:
    group = _group(module)
    return GROUPS.index(group) if group else len(GROUPS)


def _is_made(path: Path, text: str = "") -> bool:
    """Make a file, which only the first can."""
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _modules(session: pytest.Session, node: Node) -> Iterator[Node]:
    """The modules of a folder; what is none is taken as it is."""
    if not isinstance(node, pytest.Directory):
        yield node
        return
    report = collect_one_node(node)
    session.ihook.pytest_collectreport(report=report)
    for inner in report.result or []:
        yield from _modules(session, inner)


def _rank(folder: str) -> int:
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


def is_complete(folder: Path) -> bool:
    """Whether every module that was taken has been run to its end."""
    return all(path.read_text() for path in folder.iterdir())
