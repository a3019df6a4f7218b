"""`make test-matrix`: the suite on each Python and Django that can be had here; the others are told as not tried.

`PYTHONS` names interpreters, by version or by path. Arguments are pytest's.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DJANGOS = {"5.2": "django~=5.2.19", "6.0": "django~=6.0.0"}
FOLDER = ROOT / ".venv-matrix"
DATABASES = ("sqlite", "postgresql")
UV = str(Path(sys.executable).parent / "uv")


def main(arguments: list[str]) -> None:
    results = {}
    for python in os.environ.get("PYTHONS", "").split() or PYTHONS:
        for django, requirement in DJANGOS.items():
            results[python, django] = result = tried(python, requirement, arguments)
            print(f"Python {python}, Django {django}: {result}", flush=True)
    print("\n".join(["", *(f"Python {python}, Django {django}: {told}" for (python, django), told in results.items())]))
    sys.exit(any(result.startswith("failed") for result in results.values()))


def tried(python: str, requirement: str, arguments: list[str]) -> str:
    """How the suite went on one pair."""
    folder = FOLDER / f"{Path(python).parent.parent.name or python}-{requirement.partition('=')[2]}"
    program = str(folder / "bin" / "python")
    if subprocess.run(
        [UV, "venv", "--quiet", "--allow-existing", "--python", python, str(folder)], check=False
    ).returncode:
        return "not tried: there is no such Python"
    override = folder / "override.txt"
    override.write_text(f"{requirement}\n")
    install = [
        UV,
        "pip",
        "install",
        "--quiet",
        "--python",
        program,
        "-r",
        "requirements/dev.in",
        "--override",
        str(override),
    ]
    if subprocess.run(install, cwd=ROOT, check=False).returncode:
        return "not tried: its packages cannot be installed"
    for database in DATABASES:
        command = [program, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--database", database, *arguments]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return f"failed on {database}"
    return "passed on SQLite and PostgreSQL"


if __name__ == "__main__":
    main(sys.argv[1:])
