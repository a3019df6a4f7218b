import os
from typing import Any

from celery import Celery

from benchmarks.queue.jobs import enter

app = Celery("benchmark", broker=os.environ["BENCHMARK_BROKER"])
app.conf.update(task_ignore_result=True, task_default_queue="benchmark", broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(carried: dict[str, Any]) -> None:
    enter(carried["number"])
