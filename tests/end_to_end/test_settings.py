"""Starting with the environment as people set it: right, wrong, or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.database import another
from tests.processes import LIMIT, PIPES, ROOT, ended, free_port, serve, wait_for

pytestmark = pytest.mark.once


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with only these variables set."""
    return ended(warm.start(arguments, {"PATH": os.environ["PATH"], **variables}, **PIPES))


def manage_anew(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same in an interpreter that has nothing loaded, as people start it."""
    clean = {"PATH": os.environ["PATH"], **variables}
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=2 * LIMIT, check=False)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DATABASE_URL", "mysql://user:hunter2@host/name"),
        ("DATABASE_URL", "postgresql://user:hunter2@host:port/name"),
        ("CELERY_BROKER_URL", "kafka://host"),
        ("CELERY_BROKER_URL", "redis://:hunter2@localhost:abc"),
        ("ERGON_METRICS_PORT", "70000"),
        ("ERGON_SERVICES", '{"a": 1}'),
        ("ERGON_TASKS", "shop-tasks"),
        ("DJANGO_DEBUG", "perhaps"),
        ("DJANGO_SECRET_KEY", "short"),
        ("ERGON_LEASE_SECONDS", "-5"),
        ("ERGON_EXECUTORS", "[1]"),
        ("ERGON_CERTIFICATE_HEADER", "X Client"),
        ("ERGON_TRUSTED_PROXIES", "everybody"),
        ("ERGON_PEERS", "https://ergon:hunter2@plant.example"),
        ("ERGON_FACT_LIMITS", '{"subjects": 1}'),
        ("ERGON_FACT_LIMITS", '{"subject": "x"}'),
        ("ERGON_FACT_LIMITS", '{"message_id": 5000}'),
        ("ERGON_DATA_DIR", "/dev/null/data"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_variable(tmp_path: Path, variable: str, value: str) -> None:
    variables = {"ERGON_DATA_DIR": str(tmp_path), variable: value}
    failed = manage("check", **variables)
    assert failed.returncode == os.EX_CONFIG
    assert failed.stderr.startswith(f"ergon: {variable} ")
    assert len(failed.stderr.splitlines()) == 1
    assert "hunter2" not in failed.stderr


def test_a_database_that_does_not_answer_is_one_line_too(tmp_path: Path) -> None:
    url = f"postgresql://user:hunter2@127.0.0.1:{free_port()}/name"
    failed = manage_anew("migrate", ERGON_DATA_DIR=str(tmp_path), DATABASE_URL=url)
    assert failed.returncode == os.EX_UNAVAILABLE
    assert failed.stderr.startswith("ergon: DATABASE_URL: the database does not answer")
    assert len(failed.stderr.splitlines()) == 1
    assert "hunter2" not in failed.stderr


def test_secure_mode_requires_a_key(tmp_path: Path) -> None:
    failed = manage_anew("check", ERGON_DATA_DIR=str(tmp_path), DJANGO_SECURE="1")
    assert failed.returncode == os.EX_CONFIG
    assert failed.stderr == "ergon: DJANGO_SECRET_KEY is required with DJANGO_SECURE=1\n"


def test_a_module_of_tasks_that_is_not_there_is_found_by_the_checks(tmp_path: Path) -> None:
    for name in ("nope", "nope.tasks", "engines.nope"):
        variables = {"ERGON_DATA_DIR": str(tmp_path), "ERGON_TASKS": f"ergon_site.demo.tasks,{name}"}
        failed = manage("check", "--fail-level", "WARNING", **variables)
        assert failed.returncode == 1
        assert f"ERGON_TASKS names a module that is not there: '{name}'" in failed.stderr
        assert "demo_tasks" not in failed.stderr


@pytest.mark.django_db(transaction=True)
def test_a_module_of_tasks_that_is_not_there_stops_neither_migrate_nor_the_web_process(tmp_path: Path) -> None:
    with another(tmp_path) as address:
        variables = {"ERGON_DATA_DIR": str(tmp_path), "ERGON_TASKS": "nope.tasks", "DATABASE_URL": address}
        migrated = manage("migrate", "--verbosity", "0", **variables)
        assert (migrated.returncode, "ergon.W001" in migrated.stderr) == (0, True)
        assert manage("create_api_client", "shop", "--scope", "transactions:read", **variables).returncode == 0
        with serve(None, **variables) as site:
            wait_for(f"{site.url}/readyz")


@pytest.mark.parametrize(
    "command",
    [
        ("create_api_client", "shop", "--scope", "platform"),
        ("api_client", "list"),
        ("changepassword", "ada"),
        ("createsuperuser", "--noinput", "--username", "ada", "--email", "ada@shop.example"),
        ("zone", "list"),
        ("status",),
        ("submit", "orders", "--payload", "1"),
    ],
)
def test_a_database_that_was_not_migrated_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    failed = manage(*command, ERGON_DATA_DIR=str(tmp_path))
    assert failed.returncode == os.EX_UNAVAILABLE
    where = f"SQLite {tmp_path}/ergon.sqlite3"
    assert f"the database is not up to date: run manage.py migrate (it is {where})" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_the_consoles_pages_are_loaded_for_addresses_and_checks_alone(tmp_path: Path) -> None:
    asking = "import sys, django; django.setup(); {} print([name for name in sys.modules if name.endswith('.admin')])"
    clean = {**os.environ, "DJANGO_SETTINGS_MODULE": "ergon_site.settings", "ERGON_DATA_DIR": str(tmp_path)}
    ours = ["ergon_site.access.admin", "engines.admin", "providers.admin", "facts.admin"]

    def loaded(first: str) -> list[str]:
        command = [sys.executable, "-c", asking.format(first)]
        told = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=LIMIT, check=True)
        return [name for name in ours if f"'{name}'" in told.stdout]

    assert loaded("") == []
    assert loaded("from django.core.checks import Tags, run_checks; run_checks(tags=[Tags.admin]);") == ours


def test_a_header_of_certificates_requires_trusted_proxies(tmp_path: Path) -> None:
    failed = manage("check", ERGON_DATA_DIR=str(tmp_path), ERGON_CERTIFICATE_HEADER="ErgonCertificate")
    assert failed.returncode == os.EX_CONFIG
    assert failed.stderr.startswith("ergon: ERGON_TRUSTED_PROXIES is required with ERGON_CERTIFICATE_HEADER")
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize(("name", "is_told"), [("X-Client", True), ("ErgonCertificate", False)])
def test_a_header_with_a_second_spelling_is_told_before_it_is_deployed(
    tmp_path: Path, name: str, *, is_told: bool
) -> None:
    proxies = {"ERGON_CERTIFICATE_HEADER": name, "ERGON_TRUSTED_PROXIES": "10.0.0.5"}
    checked = manage("check", "--deploy", ERGON_DATA_DIR=str(tmp_path), **proxies)
    assert ("do not tell X-Client from X_Client" in checked.stderr) is is_told


def test_production_settings_pass_the_deployment_checks(tmp_path: Path) -> None:
    checked = manage(
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        ERGON_DATA_DIR=str(tmp_path),
        DJANGO_SECURE="1",
        DJANGO_SECRET_KEY="a-Key_of.some/length+with=much$chance&and!more?than50chars",
        DJANGO_ALLOWED_HOSTS="ergon.example",
    )
    assert checked.returncode == 0, checked.stderr
    assert "no issues" in checked.stdout


def test_with_nothing_set_a_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    # The first of the migrations: to make all of them tells no more of the key.
    assert manage_anew("migrate", "contenttypes", "--verbosity", "0", ERGON_DATA_DIR=str(tmp_path)).returncode == 0
    key = tmp_path / "secret_key"
    made = key.read_text()
    assert manage_anew("version", ERGON_DATA_DIR=str(tmp_path)).returncode == 0
    assert key.read_text() == made
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_text()) >= 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ergon.sqlite3", "secret_key"]


def test_a_data_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a#b?c=d%20e"
    ask = "from django.conf import settings; print(settings.DATABASES['default']['NAME'])"
    asked = manage("shell", "--no-imports", "--command", ask, ERGON_DATA_DIR=str(folder))
    assert asked.stdout.splitlines()[-1] == str(folder / "ergon.sqlite3"), asked.stderr


def test_processes_that_start_at_once_agree_on_the_key(tmp_path: Path) -> None:
    clean = {"PATH": os.environ["PATH"], "ERGON_DATA_DIR": str(tmp_path)}
    ask = "from ergon_site.settings import SECRET_KEY; print(SECRET_KEY)"
    started = [
        subprocess.Popen([sys.executable, "-c", ask], cwd=ROOT, env=clean, stdout=subprocess.PIPE) for _ in range(6)
    ]
    assert len({process.communicate(timeout=2 * LIMIT)[0] for process in started}) == 1
