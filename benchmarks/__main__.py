"""`python -m benchmarks [NAME …] [--write] [--OPTION …]`: run the named benchmarks, or all of them; options are theirs.

Each runs in a process of its own, with settings of its own. `--write` puts what they have measured into the page of
figures.
"""

import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import benchmarks
from benchmarks import goals

# Where a process of a single benchmark puts its figures.
TOLD = "BENCHMARK_FIGURES"
NO_BENCHMARKS = ("__main__", "goals")


def main() -> None:
    known = [one.name for one in pkgutil.iter_modules(benchmarks.__path__) if one.name not in NO_BENCHMARKS]
    if {"-h", "--help"} & set(sys.argv):
        print(f"{__doc__}\nBenchmarks: {', '.join(known)}. Their options: benchmarks/README.md")
        return
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or known
    if unknown := [name for name in chosen if name not in known]:
        sys.exit(f"no benchmark named {unknown[0]!r}; there are: {', '.join(known)}")
    options = [option for option in sys.argv[1:] if option.startswith("-")]
    if TOLD in os.environ:
        sys.argv[1:] = options
        goals.save(import_module(f"benchmarks.{chosen[0]}").main(), Path(os.environ[TOLD]))
        return
    is_written = "--write" in options
    with TemporaryDirectory() as folder:
        for name in chosen:
            told = Path(folder) / name
            command = [sys.executable, "-m", "benchmarks", name, *(one for one in options if one != "--write")]
            print(f"== {name}", flush=True)
            code = subprocess.run(command, env=os.environ | {TOLD: str(told)}, check=False).returncode  # noqa: S603 (ours)
            if code:
                sys.exit(code)
            if is_written:
                goals.write(name, goals.load(told))


if __name__ == "__main__":
    main()
