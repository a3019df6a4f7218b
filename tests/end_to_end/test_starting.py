"""What a start loads: a command that does little must not pay for what it does not use."""

import re
import subprocess
import sys

import pytest

from tests.processes import LIMIT, ROOT, environment

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

# Celery and what it loads, the API, the console, the SDK of telemetry and its exporters, clients of HTTP.
HEAVY = re.compile(
    r"(celery|kombu|amqp|yaml|rich\.\w+|httpx|requests|prometheus_client|drf_spectacular\.openapi|rest_framework\.\w*views?"
    r"|opentelemetry\.(sdk|exporter|instrumentation)|ergon_site\.(urls|console|dashboard|probes)|\w+\.admin\.\w+"
    r"|psycopg_pool)(\.|$)"
)
LINE = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """An interpreter that has nothing loaded, as people start it."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=2 * LIMIT, check=False
    )


@pytest.mark.parametrize("command", ["help", "status", "pipeline list", "dead_letters", "api_client list"])
def test_a_small_command_loads_nothing_heavy(command: str) -> None:
    ran = python("-X", "importtime", "manage.py", *command.split())
    loaded = LINE.findall(ran.stderr)
    assert (ran.returncode, "django.db.models" in loaded) == (0, True), ran.stderr[-2000:]
    assert not [name for name in loaded if HEAVY.match(name) and not name.startswith("django.")]


def test_celerys_results_are_loaded_by_who_uses_them_and_by_djangos_commands() -> None:
    script = """
import sys
from ergon_site import command_line
from ergon_site.apps import CeleryResults
sys.argv = ["manage.py", "status"]
command_line.run(sys.argv)
print(CeleryResults.is_left_for_later, "celery" in sys.modules)
from django.apps import apps
from django_celery_results.models import TaskResult
print(TaskResult.objects.count(), apps.get_model("django_celery_results", "TaskResult") is TaskResult)
command_line.run(["manage.py", "makemigrations", "--check"])
print(CeleryResults.is_left_for_later)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment(DJANGO_SETTINGS_MODULE="ergon_site.settings"),
        capture_output=True,
        text=True,
        timeout=2 * LIMIT,
        check=False,
    )
    assert ran.stdout.splitlines()[-4:] == ["True False", "0 True", "No changes detected", "False"], ran.stderr
