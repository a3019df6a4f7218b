"""The house rules that a linter does not know."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("ergon_site", "engines", "providers", "facts")
BANNED_NAMES = {"common", "utils", "helpers", "services", "manager"}
WRITES = {"save", "create", "update", "bulk_create", "atomic"}
TOP_LEVEL = {
    *("manage.py", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile"),
    *("ergon_site", "engines", "providers", "facts", "templates", "tests", "requirements", "docs", "benchmarks"),
    *(".ci", ".gitignore"),
}


def tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).exists()]


def sources() -> list[Path]:
    return [path for path in tracked(*(f"{app}/*.py" for app in APPS)) if "migrations" not in path.parts]


def writes(path: Path) -> Iterator[str]:
    """Attributes that write rows, unless they are verbs of an imported module (`clients.create`)."""
    tree = ast.parse(path.read_text())
    modules = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
    for node in ast.walk(tree):
        is_verb = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
        if isinstance(node, ast.Attribute) and node.attr in WRITES and not is_verb:
            yield node.attr


def test_the_top_level_is_as_designed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP_LEVEL


def test_no_module_has_a_name_that_means_anything() -> None:
    names = {part for path in sources() for part in (*path.relative_to(ROOT).parent.parts, path.stem)}
    assert not names & BANNED_NAMES


def test_console_pages_write_nothing_themselves() -> None:
    pages = [path for path in sources() if "admin" in path.parts]
    assert pages
    assert {path.name: found for path in pages if (found := list(writes(path)))} == {}


def test_the_file_of_a_console_page_can_be_read_in_one_go() -> None:
    pages = [path for path in sources() if "admin" in path.parts]
    assert [path.name for path in pages if path.read_text().count("\n") > 300] == []


def test_the_core_is_written_once_for_threads_and_asyncio() -> None:
    core = [path for path in sources() if "core" in path.parts]
    assert core
    assert [path for path in core if "async def" in path.read_text()] == []


def test_frozen_values_stay_frozen() -> None:
    assert [path for path in sources() if "object.__setattr__" in path.read_text()] == []


def test_no_app_listens_to_signals_of_rows() -> None:
    assert [path for path in sources() if re.search(r"\breceiver\b", path.read_text())] == []


def test_nothing_waits_at_a_simple_queue_for_a_limited_time() -> None:
    """If the time of such a `get` is up before it begins to wait, it waits for ever."""
    queues = [path for path in sources() if "SimpleQueue()" in path.read_text()]
    assert queues
    assert [path for path in queues if re.search(r"\.get\((?!\))", path.read_text())] == []


def decorators(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The functions of a module, and what each is decorated with."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node.name, [ast.unparse(one) for one in node.decorator_list]


def test_verbs_that_are_database_transactions_are_run_again_after_a_conflict() -> None:
    # SQLite knows no such conflicts: its statements are one side of the verbs that call them.
    modules = [path for path in sources() if path.name != "sqlite.py"]
    unguarded = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules
        for name, found in decorators(path)
        if not name.startswith("_")
        and any(one.startswith("transaction.atomic") for one in found)
        and "retry_conflicts" not in found
    ]
    assert unguarded == []


def test_serializers_and_models_hold_no_logic() -> None:
    kept = [path for path in sources() if {path.stem, path.parent.name} & {"models", "serializers"}]
    methods = r"def (create|update|save|delete)\("
    assert [path for path in kept if re.search(methods, path.read_text())] == []


def test_tests_that_patch_say_why() -> None:
    unsaid = []
    for path in tracked("tests/*.py"):
        lines = path.read_text().splitlines()
        for above, line in zip(["", *lines], lines, strict=False):
            if "mock." + "patch" in line and "#" not in above + line:
                unsaid.append(path.name)
    assert unsaid == []


@pytest.mark.parametrize("name", ["base", "production", "s3", "dev", "bench", "docs"])
def test_pinned_requirements_name_no_host_and_have_hashes(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    pins = re.findall(r"^[\w.\[\]-]+==\S+", text, flags=re.MULTILINE)
    assert pins
    assert text.count("--hash=sha256:") >= len(pins)


def test_every_set_of_requirements_pins_the_same_versions() -> None:
    pins = {
        name: set(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / f"requirements/{name}.txt").read_text(), re.MULTILINE))
        for name in ("base", "production", "s3", "dev", "bench")
    }
    assert pins["base"] < pins["production"] < pins["dev"] < pins["bench"]
    assert pins["production"] < pins["s3"]


def test_every_direct_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    direct = {
        match
        for path in (ROOT / "requirements").glob("*.in")
        for match in re.findall(r"^([a-z][\w-]*)", path.read_text(), flags=re.MULTILINE)
    }
    assert [name for name in sorted(direct) if f"`{name}`" not in reasons] == []


def test_every_variable_is_documented() -> None:
    settings = (ROOT / "ergon_site" / "settings.py").read_text()
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    names = set(re.findall(r'read\(\s*"([A-Z_]+)"', settings))
    assert names
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_every_test_that_the_conformance_page_names_exists() -> None:
    page = (ROOT / "docs" / "reference" / "conformance.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    there = {name for path in tracked("tests/*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named - there == set()


LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


def test_every_link_leads_to_a_file_and_a_heading_that_are_there() -> None:
    links = [(page, *found) for page in tracked("*.md") for found in LINK.findall(page.read_text())]
    assert links
    assert [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page, target, anchor in links
        if not _is_there(page, target, anchor)
    ] == []


def _is_there(page: Path, target: str, anchor: str) -> bool:
    aim = page.parent / target if target else page
    return aim.exists() and (not anchor or aim.suffix != ".md" or anchor in _anchors(aim.resolve()))


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the documentation site make them."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_page_is_in_the_navigation_and_on_the_page_of_pages() -> None:
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in tracked("docs/*.md")} - {"README.md"}
    listed = {target for target, _ in LINK.findall((docs / "README.md").read_text())}
    navigation = set(re.findall(r"- docs/(\S+\.md)$", (docs / "mkdocs.yml").read_text(), re.MULTILINE))
    assert (pages - listed, pages ^ navigation) == (set(), set())
