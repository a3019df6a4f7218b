"""django-tasks' database backend: its `db_worker`. It has no call that enqueues many.

The worker closes connections that have passed their age after each job. As Django comes they have all passed it, so a
second line keeps them open.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.queue.jobs import payload

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers

WORKER = [sys.executable, "-m", "django", "db_worker", "--no-startup-delay", "--verbosity", "0"]


@dataclass(frozen=True, slots=True)
class DjangoTasks:
    name: str = "django-tasks, database backend"
    keeps_connections: bool = False
    jobs: int = 500
    wakes: bool = False

    def environment(self, servers: "Servers") -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "benchmarks.queue.workers.django_settings",
            "BENCHMARK_CONNECTIONS": "kept" if self.keeps_connections else "closed",
            "BENCHMARK_DATABASE": servers.database("django_tasks"),
        }

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        return [[*WORKER, "--worker-id", f"worker{number}"] for number in range(processes)]

    def install(self) -> None:
        _set_up()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)

    def prepare(self) -> None:
        _set_up()
        from django_tasks_db.models import DBTaskResult

        DBTaskResult.objects.all().delete()

    def submit(self, number: int) -> None:
        from benchmarks.queue.workers.django_tasks import noop

        noop.enqueue(payload(number))

    def submit_many(self, numbers: range) -> None:
        for number in numbers:
            self.submit(number)

    def settle_down(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE)")

    def unsettled(self) -> int:
        from django_tasks_db.models import DBTaskResult

        return int(DBTaskResult.objects.filter(finished_at=None).count())


def _set_up() -> None:
    import django

    django.setup()
