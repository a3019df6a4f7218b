"""A real Celery worker on the real broker, writing its results into the test's database."""

import os
import re
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from django_celery_results.models import TaskResult

from ergon_site.celery import app
from tests.processes import LIMIT, eventually, process

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = ("celery", "-A", "ergon_site", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle")
TASK = """
from ergon_site.celery import app


@app.task(name="shop.double")
def double(number):
    return 2 * number
"""


def worker(log: Path | None = None, **changes: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return process(*WORKER, log=log, **changes)


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, str]:
    """The variables of a process that has the shop's tasks."""
    (tmp_path / "shop_tasks.py").write_text(TASK)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "ERGON_TASKS": "shop_tasks"}


def is_kept(task_id: str) -> bool:
    return bool(TaskResult.objects.filter(task_id=task_id, status="SUCCESS").exists())


def test_a_worker_takes_a_task_from_the_broker_and_keeps_its_result() -> None:
    with worker():
        sent = app.send_task("celery.accumulate", args=[1, 2, 3], kwargs={"index": 1})
        eventually(lambda: is_kept(sent.id), "the result is kept")
    assert TaskResult.objects.get(task_id=sent.id).result == "2"


def test_a_worker_has_the_tasks_of_the_modules_that_the_settings_name(shop: dict[str, str]) -> None:
    sent = app.send_task("shop.double", args=[21])
    with worker(None, **shop):
        eventually(lambda: is_kept(sent.id), "the result is kept")
    assert TaskResult.objects.get(task_id=sent.id).result == "42"


def test_a_task_that_a_worker_does_not_have_is_kept_for_one_that_has_it(shop: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    sent = app.send_task("shop.double", args=[4])
    with worker(log):
        eventually(lambda: "shop.double" in log.read_text(), "the worker logs the unknown task")
        other = app.send_task("celery.accumulate", args=[5], kwargs={"index": 0})
        eventually(lambda: is_kept(other.id), "the worker goes on to the next message")
    with worker(None, **shop):
        eventually(lambda: is_kept(sent.id), "the result is kept")


def test_a_worker_with_a_module_that_cannot_be_imported_does_not_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with worker(log, ERGON_TASKS="nowhere.tasks") as running:
        assert running.wait(LIMIT) == os.EX_CONFIG
    (line,) = (line for line in log.read_text().splitlines() if line.strip())
    assert re.match(r"ergon: ERGON_TASKS: the module 'nowhere\.tasks' cannot be imported", line)
