"""How much is submitted by sixteen clients at once, with notifications and without: in processes and in threads.

All clients submit one by one for as long as the round lasts. In every other slice of the round nobody notifies: so a
neighbour that is busy for a while takes as much from one half as from the other. Somebody listens all the time, as a
waiting worker does; nobody takes anything.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CLIENTS = 16
SLICE = 0.5
WARM_UP = 20

Submit = Callable[[int], None]


def measure(prepare: Callable[[], None], submit: Submit, rounds: int, seconds: float) -> Iterator[dict[str, float]]:
    """Submissions a second: `processes`, `processes_silent`, `threads`, `threads_silent`; once for each round."""
    for _ in range(rounds):
        figures: dict[str, float] = {}
        for name, crowd in (("processes", Processes(submit)), ("threads", Threads(submit))):
            prepare()
            with listener():
                loud, silent = crowd.run(seconds)
            figures |= {name: loud * 2 / seconds, f"{name}_silent": silent * 2 / seconds}
        yield figures


class Processes:
    """Clients that are forked, as those of gunicorn and Celery are."""

    context: Any = multiprocessing.get_context("fork")

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._start = self.context.Barrier(CLIENTS)
        self._counts = self.context.SimpleQueue()

    def run(self, seconds: float) -> tuple[int, int]:
        """How many were submitted with notifications, and how many without."""
        from django.db import connections

        connections.close_all()  # each client makes its own
        clients = [self.context.Process(target=self._process, args=[seconds]) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        counts = [self._counts.get() for _ in clients]
        for client in clients:
            client.join()
        return sum(loud for loud, _ in counts), sum(silent for _, silent in counts)

    def _process(self, seconds: float) -> None:
        silence_every_other_slice()
        self.client(seconds)

    def client(self, seconds: float) -> None:
        from django.db import connections

        for number in range(WARM_UP):
            self._submit(number)
        self._start.wait()
        # Whole pairs of slices, and the same ones for all.
        counts, began = [0, 0], _next_pair()
        while (now := time.monotonic()) < began + seconds:
            self._submit(0)
            counts[is_silent(now)] += now >= began
        self._counts.put(counts)
        connections.close_all()


class Threads(Processes):
    """Clients that are threads of one process."""

    def run(self, seconds: float) -> tuple[int, int]:
        crowd = self.context.Process(target=self._crowd, args=[seconds])
        crowd.start()
        loud, silent = self._counts.get()
        crowd.join()
        return loud, silent

    def _crowd(self, seconds: float) -> None:
        silence_every_other_slice()
        total, self._counts, self._start = self._counts, Tally(), threading.Barrier(CLIENTS)
        clients = [threading.Thread(target=self.client, args=[seconds]) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        total.put(self._counts.sums)


class Tally:
    """What threads count together."""

    def __init__(self) -> None:
        self.sums = [0, 0]
        self._lock = threading.Lock()

    def put(self, counts: list[int]) -> None:
        with self._lock:
            self.sums = [one + other for one, other in zip(self.sums, counts, strict=True)]


def is_silent(now: float) -> bool:
    return int(now / SLICE) % 2 == 1


def _next_pair() -> float:
    return (int(time.monotonic() / SLICE) // 2 + 1) * 2 * SLICE


def silence_every_other_slice() -> None:
    """Make this process notify nobody in every other slice."""
    from engines.transactions.statements import postgresql

    notifier: Any = postgresql.notifier
    committed = notifier.committed
    notifier.committed = lambda *told: None if is_silent(time.monotonic()) else committed(*told)


@contextmanager
def listener() -> Iterator[None]:
    """A connection that listens, in a process of its own."""
    from django.db import connection

    known = connection.get_connection_params().items()
    parameters = {name: value for name, value in known if isinstance(value, str | int)}
    process = Processes.context.Process(target=_listen, args=[parameters], daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _listen(parameters: dict[str, Any]) -> None:
    import psycopg

    with psycopg.connect(**parameters, autocommit=True) as connection:
        connection.execute("LISTEN ergon_transactions")
        for _ in connection.notifies():
            pass
