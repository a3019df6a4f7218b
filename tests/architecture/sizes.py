"""`python -m tests.architecture.sizes`: how long files and functions are; fails only on gross excess."""

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

USUAL_FUNCTION, LONGEST_FUNCTION = 24, 80
USUAL_FILE, LONGEST_FILE = 250, 500
PACKAGES = ("ergon_site", "engines", "providers", "facts")


def main() -> int:
    files = {path: path.read_text() for path in _sources()}
    lengths = {str(path): text.count("\n") for path, text in files.items() if text.strip()}
    functions = {name: length for path, text in files.items() for name, length in _functions(path, text)}
    _report("files", lengths, usual=USUAL_FILE)
    _report("functions", functions, usual=USUAL_FUNCTION)
    excess = [f"{name}: {length} lines" for name, length in lengths.items() if length > LONGEST_FILE]
    excess += [f"{name}: {length} lines" for name, length in functions.items() if length > LONGEST_FUNCTION]
    for line in excess:
        print(f"far too long: {line}")
    return 1 if excess else 0


def _sources() -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files", *PACKAGES], capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        path = Path(name)
        if path.suffix == ".py" and "migrations" not in path.parts and path.exists():
            yield path


def _functions(path: Path, text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield f"{path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def _report(what: str, lengths: dict[str, int], *, usual: int) -> None:
    values = sorted(lengths.values())
    if not values:
        return
    ninth = values[int(len(values) * 0.9)]
    print(f"{len(values)} {what}: median {statistics.median(values):.0f} lines, nine of ten at most {ninth}")
    for name, length in sorted(lengths.items(), key=lambda item: -item[1]):
        if length > usual:
            print(f"  {length:4} {name}")


if __name__ == "__main__":
    sys.exit(main())
