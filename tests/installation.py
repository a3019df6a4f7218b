"""The distribution, built from this clone and installed into an environment that has nothing else of it."""

import filecmp
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from tests.processes import LIMIT, ROOT

# What a shell has that knows nothing of this run.
KEPT = ("HOME", "LANG", "PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with Ergon in it."""

    folder: Path

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, cwd: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end, in a folder."""
        words = [self.program(command[0]), *command[1:]]
        env = environment(**variables)
        return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=2 * LIMIT, check=False)

    def done(self, cwd: Path, *command: str, **variables: str) -> str:
        """The same; it must end well, and this is what it prints."""
        ended = self.run(cwd, *command, **variables)
        assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
        return ended.stdout


def environment(**variables: str) -> dict[str, str]:
    return {name: os.environ[name] for name in KEPT if name in os.environ} | variables


def build(folder: Path) -> Path:
    """The wheel, made by the build backend itself: nothing is fetched."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=LIMIT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Installation:
    """An environment with the wheel alone; what Ergon depends on comes from the environment that runs the tests."""
    venv.create(folder, symlinks=True)
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--offline", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*uv, "--python", str(folder / "bin" / "python"), str(wheel)], check=True, timeout=LIMIT)
    (packages,) = folder.glob("lib/python*/site-packages")
    for module in packages.rglob("*.py"):
        copy_bytecode(ROOT / module.relative_to(packages), module)
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return Installation(folder)


def copy_bytecode(source: Path, copy: Path) -> None:
    """Spare a copy of a module that it is compiled once more: for all of them that takes seconds, and tells nothing."""
    compiled, target = (Path(cache_from_source(str(path))) for path in (source, copy))
    if compiled.is_file() and filecmp.cmp(source, copy, shallow=False):
        shutil.copystat(source, copy)  # by its time Python knows what was compiled
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(compiled, target)
