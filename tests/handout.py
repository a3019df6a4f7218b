"""Hands out the modules of the suite among processes that run side by side: each is run by the first that asks for it.

All of them collect the same tests. A module belongs to the process that has made the file of its name, which only one
can. So each takes a new one when it is free, and none is idle while another still has much to do.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

# What takes long comes first: else it would be taken last, and be waited for by all.
FOLDERS = ("faults", "conformance", "executors", "providers", "end_to_end", "engines", "facts", "console")


class Handout:
    """The plugin of one such process."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._ran = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: (_rank(item.path.parent.name), item.path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """As pytest's own, for the modules that are ours."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        ours = self._take(session.items)
        item = next(ours, None)
        while item is not None:
            following = next(ours, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._ran += 1
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        (self._folder / f"{self._name}.json").write_text(json.dumps([self._ran, len(session.items)]))
        return True

    def _take(self, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        taken: dict[Path, bool] = {}
        for item in items:
            if item.path not in taken:
                taken[item.path] = self._is_ours(item.path, item.config.rootpath)
            if taken[item.path]:
                yield item

    def _is_ours(self, module: Path, root: Path) -> bool:
        try:
            (self._folder / str(module.relative_to(root)).replace("/", ".")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _rank(folder: str) -> int:
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


def is_complete(folder: Path) -> bool:
    """Whether every test that was collected has been run, and by one process only."""
    told = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    collected = {count for _, count in told}
    return len(collected) <= 1 and sum(ran for ran, _ in told) == sum(collected)
