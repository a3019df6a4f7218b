"""Who takes part: one module each, behind one small interface.

Their packages are imported where they are used, so that the process that compares them loads none.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from benchmarks.queue.servers import Servers


class Contender(Protocol):
    """A queue and its worker, in its documented fast configuration."""

    @property
    def name(self) -> str: ...

    @property
    def jobs(self) -> int:
        """How many make a drain of a few seconds."""

    @property
    def wakes(self) -> bool:
        """Whether new work wakes a waiting worker. The latency of workers that poll is not measured."""

    def environment(self, servers: "Servers") -> dict[str, str]:
        """The environment variables of its processes."""

    def commands(self, processes: int, *, drain: bool) -> list[list[str]]:
        """The command lines of its workers."""

    def install(self) -> None:
        """Make its tables, once."""

    def prepare(self) -> None:
        """Connect, and empty its queue."""

    def submit(self, number: int) -> None: ...

    def submit_many(self, numbers: range) -> None: ...

    def settle_down(self) -> None:
        """What the store would do by itself within a minute."""

    def unsettled(self) -> int:
        """How many jobs its store does not know as done."""


def by_key() -> dict[str, Contender]:
    """All of them, in the order in which they take turns."""
    from benchmarks.queue.contenders.celery import Celery
    from benchmarks.queue.contenders.django_tasks import DjangoTasks
    from benchmarks.queue.contenders.dramatiq import Dramatiq
    from benchmarks.queue.contenders.ergon import Ergon
    from benchmarks.queue.contenders.failing import Failing
    from benchmarks.queue.contenders.pgqueuer import PgQueuer
    from benchmarks.queue.contenders.procrastinate import Procrastinate
    from benchmarks.queue.contenders.raw import Raw
    from benchmarks.queue.contenders.verbs import Verbs

    return {
        "ergon": Ergon(),
        "limited": Ergon(name="Ergon, 30 s limit per attempt", pipeline="limited", policy="default"),
        "failing": Failing(),
        "many": Ergon(name="Ergon, 30 s limit, 200 pipelines", pipeline="many", policy="default", idle=199),
        "verbs": Verbs(),
        "raw": Raw(),
        "pgqueuer": PgQueuer(),
        "pgqueuer-asyncpg": PgQueuer(name="pgqueuer with asyncpg", key="pgqueuer-asyncpg", has_asyncpg=True),
        "procrastinate": Procrastinate(),
        "django-tasks": DjangoTasks(jobs=200),
        "django-tasks-kept": DjangoTasks(name="django-tasks, connections kept", keeps_connections=True),
        "celery-rabbitmq": Celery(name="Celery on RabbitMQ", broker="rabbitmq"),
        "celery-valkey": Celery(name="Celery on Valkey", broker="valkey"),
        "dramatiq": Dramatiq(),
    }


def in_thousands(numbers: range) -> Iterator[range]:
    for first in range(0, len(numbers), 1000):
        yield numbers[first : first + 1000]
