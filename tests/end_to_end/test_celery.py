"""A real Celery worker on the real broker, writing its results into the test's database."""

import pytest
from django_celery_results.models import TaskResult

from ergon_site.celery import app
from tests.processes import eventually, process


@pytest.mark.django_db(transaction=True)
def test_a_worker_takes_a_task_from_the_broker_and_keeps_its_result() -> None:
    with process("celery", "-A", "ergon_site", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle"):
        sent = app.send_task("celery.accumulate", args=[1, 2, 3], kwargs={"index": 1})
        eventually(lambda: TaskResult.objects.filter(task_id=sent.id, status="SUCCESS").exists(), "the result is kept")
    assert TaskResult.objects.get(task_id=sent.id).result == "2"
