from typing import Any

from django_tasks import task

from benchmarks.queue.jobs import enter


@task()
def noop(carried: dict[str, Any]) -> None:
    enter(carried["number"])
