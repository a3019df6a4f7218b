"""Ergon as it was before: the code of an earlier commit, in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, environment

MIGRATIONS = ":(glob)**/migrations/[0-9]*.py"
SUBMIT = "engines/management/commands/submit.py"
SHALLOW = "needs the history of the repository: git fetch --unshallow"


def before_newest_migration() -> str:
    """The last commit that does not know the newest migration."""
    if _git("status", "--porcelain", "--", MIGRATIONS):
        return "HEAD"  # it is not committed yet
    return before_each_migration()[0]


def before_each_migration() -> list[str]:
    """The commits before each that added a migration, as long as work could be submitted, the newest first.

    A clone without history cannot tell: the test is skipped, or fails in the build.
    """
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository, not only its files")
    added = _git("log", "--first-parent", "--diff-filter=A", "--format=%P", "--", MIGRATIONS).splitlines()
    # The first commit of a history, or of what was fetched of it, has none before it.
    before = [parents.split()[0] for parents in added if parents]
    if not before and os.environ.get("CI") != "true":
        pytest.skip(SHALLOW)
    assert before, SHALLOW
    return [commit for commit in before if _git("ls-tree", commit, "--", SUBMIT)]


def unpack(commit: str, folder: Path) -> "Release":
    """The code of a commit, ready to run with what is installed now."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    return Release(folder)


class Release:
    """A folder with Ergon in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def manage(self, *arguments: str, given: str = "", **changes: str) -> str:
        """What a command of that code prints; it must end well."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env=environment(**changes),
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
