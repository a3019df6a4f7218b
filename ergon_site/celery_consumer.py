"""The message consumer of Celery workers: a task that the worker does not have is given back to the broker."""

from typing import Any

import structlog
from celery.utils.log import get_logger
from celery.worker import consumer

# Long enough for other workers to take the message first, short enough for a worker that is restarted with the task.
GIVEN_BACK_AFTER = 10.0
# A worker goes on to the messages behind those that it holds, as long as it holds fewer than this.
MOST_HELD = 1000

log = structlog.get_logger("ergon.celery")


class Consumer(consumer.Consumer):
    """Celery discards messages of unknown tasks. A worker of another release, or with other modules, may have them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._held = 0
        self._unknown: set[str] = set()

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        name = (message.headers or {}).get("task") or body["task"]
        if name not in self._unknown:
            self._unknown.add(name)
            hint = "Name the module that defines it in ERGON_TASKS, and restart the worker."
            log.error("task_unknown", task=name, hint=hint)
        self._held += 1
        if self._held <= MOST_HELD:
            self.qos.increment_eventually()
        self.timer.call_after(GIVEN_BACK_AFTER, self._give_back, (message,))

    def _give_back(self, message: Any) -> None:
        message.reject_log_error(get_logger(__name__), self.connection_errors, requeue=True)
        if self._held <= MOST_HELD:
            self.qos.decrement_eventually()
        self._held -= 1
