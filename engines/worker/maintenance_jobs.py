"""The maintenance jobs: rescue, schedules, bulk operations, rollups, pruning."""

from collections.abc import Callable
from typing import NamedTuple

from django.utils.module_loading import import_string

from engines import bulk, dead_letters, schedules, transactions, workers
from engines.conf import settings
from engines.reads import depth
from ergon_site.access import idempotency

RESCUE = "rescued"


class Chore(NamedTuple):
    """Something to be done every so many seconds; what it returns counts what it did."""

    name: str
    every: float
    run: Callable[[], int]


def chores(lease: float) -> list[Chore]:
    return [
        Chore(RESCUE, lease / 6, lambda: sum(transactions.rescue())),
        Chore("workers_lost", lease / 3, workers.notice_the_dead),
        Chore("scheduled", 1.0, schedules.fire),
        Chore("bulk", 1.0, bulk.advance),
        # Asked more often than once a minute, so that no minute is left out; only the first asking in each counts.
        Chore("sampled", 15.0, depth.sample),
        Chore("folded", 60.0, transactions.fold_counts),
        Chore("pruned", 600.0, lambda: transactions.prune().total),
        Chore("trends", 3600.0, dead_letters.forget_trends),
        Chore("samples_forgotten", 3600.0, depth.forget),
        Chore("workers_forgotten", 3600.0, workers.forget),
        Chore("requests_forgotten", 600.0, idempotency.forget_old),
        *(Chore(name, every, import_string(path)) for name, (every, path) in settings().chores.items()),
    ]
